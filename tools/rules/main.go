// Command rules checks the alerts and the dashboard of deploy/monitoring with Prometheus' own parsers and Grafana's own types, and that the
// metrics and labels in them are those of docs/metrics.md, which a test compares with the program:
//
//	rules docs/metrics.md deploy/monitoring/rules.yaml deploy/monitoring/dashboard.json
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "rules METRICS.md RULES.yaml DASHBOARD.json")
		os.Exit(2)
	}
	faults, err := checkFiles(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}
