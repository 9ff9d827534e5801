//go:build linux

package storm_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxShown is how many violations a report shows, each with its history.
const maxShown = 5

// report describes what was found, with the history of each value and the faults around it.
func report(all []record, found []violation) string {
	var b strings.Builder
	for i, v := range found {
		if i == maxShown {
			fmt.Fprintf(&b, "\nand %d more\n", len(found)-maxShown)
			break
		}
		fmt.Fprintf(&b, "\n%s: %s\n  %v\nhistory of its key, and faults of both tasks:\n", strings.ToUpper(v.rule), v.text, v.at)
		for _, r := range history(all, v.at) {
			mark := "  "
			if r.At == v.at.At {
				mark = "=>"
			}
			fmt.Fprintln(&b, mark, r)
		}
	}
	return b.String()
}

// around is how long before a violation faults are shown.
const around = 15 * time.Second

// history returns the records of a key, or of a pull, and what happened to its tasks before.
func history(all []record, at record) []record {
	var list []record
	for _, r := range all {
		mine := r.Step == at.Step && r.Edge == at.Edge
		switch r.Kind {
		case kindSend, kindSent, kindTold, kindRecv, kindGot, kindMem:
			mine = mine && at.Step != 0
		case kindUpdate, kindUpdated, kindWithdraw, kindWithdrawn, kindStill:
			mine = at.Name != "" && r.Name == at.Name && r.Task == at.Peer && r.At > at.At-int64(around) && r.At < at.At+int64(time.Second)
		case kindWatch, kindYield, kindApplied, kindKept, kindUnwatch:
			mine = at.Name != "" && r.Task == at.Task && r.Life == at.Life && r.Recv == at.Recv && r.At > at.At-int64(around)
		case kindEnds, kindClose, kindDone:
			mine = r.Step == at.Step
		case kindPull, kindHas:
			mine = at.Step == 0 && r.Recv == at.Recv && r.Life == at.Life
		default:
			mine = (r.Task == at.Task || r.Task == at.Peer) && r.At > at.At-int64(around) && r.At < at.At+int64(time.Second)
		}
		if mine {
			list = append(list, r)
		}
	}
	return list
}

// count describes what a storm consisted of, so that one that did nothing is noticed. routes has
// the number of tensors received over each device, or grpc, but for the last second of each process.
func count(all []record) (text string, routes map[string]int) {
	n := make(map[string]int)
	routes = make(map[string]int)
	for _, r := range all {
		switch r.Kind {
		case kindSend:
			n["send"]++
		case kindGot:
			n["receive: "+orOK(r.Code)]++
			if r.Route != "" {
				routes[r.Route]++
				n["over "+r.Route]++
			}
			if r.Into != 0 {
				n["into memory: "+orOK(r.Code)]++
			}
		case kindTold:
			n["outcome: "+orOK(r.Code)]++
		case kindHas:
			n["pull: "+orOK(r.Code)]++
		case kindUpdated:
			n["update: "+orOK(r.Code)]++
		case kindYield:
			n["version: "+r.Name]++
		case kindApplied:
			n["apply: "+orOK(r.Code)]++
		case kindUnwatch:
			n["watch: "+orOK(r.Code)]++
		case kindSet:
			n["cluster: "+orOK(r.Code)]++
		case kindWithdrawn:
			n["withdraw: "+orOK(r.Code)]++
		case kindFault:
			name, _, _ := strings.Cut(r.Text, "; ")
			n["fault: "+name]++
		case kindUp, kindClose:
			n[string(r.Kind)]++
		}
	}
	var lines []string
	for what, k := range n {
		lines = append(lines, fmt.Sprintf("%8d  %s", k, what))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[10:], b[10:]) })
	return strings.Join(lines, "\n"), routes
}

func orOK(code string) string {
	if code == "" {
		return "OK"
	}
	return code
}
