package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// pullOptions are the flags of pull.
type pullOptions struct {
	from  serverFlags
	out   checkpoint.SaveOptions
	req   checkpoint.PullRequest
	retry time.Duration
	json  bool
	watch bool
	exec  string
}

func (s streams) pullCommand() *cobra.Command {
	var o pullOptions
	cmd := &cobra.Command{
		Use:   "pull --from HOST[:PORT]|TASK --out PATH [NAME]",
		Short: "Write tensors of a publication to files",
		Long: `Pull receives the tensors of a publication, checks the digest of each, and writes
them to files. A file appears only when it is complete. NAME may be omitted if
the server has only one publication.

If PATH is a directory or ends in a slash, pull writes the files that were
published. If it ends in .npy, pull writes one tensor, otherwise one safetensors
file. If it is -, pull writes the only file to stdout, and its result to stderr.

A pull whose connection or server fails goes on when the server is back with the
same version, for --retry without progress, and so does one that a full server
refuses. What has come of a file is in FILE.part, beside its journal. After a
pull that failed or was killed, the same command verifies what is there and
receives only the rest. A file that is there already and right stays, and any
other is replaced only with --force.

With --watch, pull goes on with each newer version until it is interrupted. It
waits for a server that is away, and for a publication that is not there. A file
is replaced. A directory PATH/ is a symbolic link to that of the version,
.PATH.VERSION, and switched when all its files are there; the directory of the
version before stays. --exec runs a command by sh for each version, with
PULLED_PATH, PULLED_PUBLICATION, PULLED_VERSION and PULLED_NUMBER in its
environment. The next version waits for its end; if it fails, that is reported.`,
		Example: `  tryst pull --from 10.0.0.1:2222 --out gpt2.safetensors
  tryst pull --from 10.0.0.1:2222 --out llama/ llama
  tryst pull --from 10.0.0.1:2222 --out - gpt2 | sha256sum
  tryst pull --from 10.0.0.1:2222 --out policy/ --watch --exec 'reload "$PULLED_PATH"' policy
  tryst pull --from 10.0.0.1:2222 --out h0.safetensors --tensor 'h.0.*' --tensor wte.weight gpt2`,
		DisableFlagsInUseLine: true,
		Args:                  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.req.Publication = firstOf(args)
			if _, err := o.from.check(cmd, s, o.check()...); err != nil {
				return err
			}
			if o.out.Out == toStdout && isTerminal(s.out) {
				return usagef("--out -: stdout is a terminal: redirect it to a file or a pipe")
			}
			if o.watch {
				return s.follow(cmd, &o)
			}
			return s.pull(cmd, &o)
		},
	}
	o.register(cmd)
	return cmd
}

func (o *pullOptions) register(cmd *cobra.Command) {
	o.from.register(cmd, 0)
	flags := cmd.Flags()
	flags.StringVar(&o.out.Out, "out", "", "`PATH` of the file or directory to write; - is stdout")
	flags.BoolVar(&o.out.Force, "force", false, "replace files that exist")
	flags.StringArrayVar(&o.req.Tensors, "tensor", nil, "pull only tensors whose name matches `GLOB`; * and ? match any character; may be repeated")
	flags.IntVar(&o.req.Inflight, "inflight", checkpoint.DefaultInflight, "number of tensors, or pieces of 4 MiB of larger ones, that are received at once")
	flags.DurationVar(&o.retry, "retry", checkpoint.DefaultRetry, "go on after failures of the connection or the server until there was no progress for this time (an attempt that has begun may take 20s longer); 0 = fail at once")
	flags.BoolVar(&o.out.NoResume, "no-resume", false, "begin anew, without what an earlier pull has left")
	flags.BoolVar(&o.json, "json", false, "write the result as one line of JSON")
	flags.BoolVar(&o.watch, "watch", false, "go on with each newer version")
	flags.StringVar(&o.exec, "exec", "", "`COMMAND` that sh runs when the files of a version have their names; with --watch")
}

// check completes the request and returns all that is wrong with the flags.
func (o *pullOptions) check() (problems []error) {
	if o.out.Out == "" {
		problems = append(problems, usagef("--out is missing: the file or directory to write"))
	}
	if o.out.Out == toStdout && o.out.Force {
		problems = append(problems, usagef("--force replaces files, and --out - writes none"))
	}
	if o.out.Out == toStdout && o.out.NoResume {
		problems = append(problems, usagef("--no-resume is about files, and --out - writes none"))
	}
	if o.out.Out == toStdout && o.watch {
		problems = append(problems, usagef("--watch is about files, and --out - writes none"))
	}
	if o.exec != "" && !o.watch {
		problems = append(problems, usagef("--exec wants --watch"))
	}
	if o.req.Inflight < 1 {
		problems = append(problems, usagef("--inflight %d: it must be at least 1", o.req.Inflight))
	}
	if o.retry < 0 {
		problems = append(problems, usagef("--retry %v: it must not be negative", o.retry))
	}
	if o.req.Retry = o.retry; o.retry == 0 {
		o.req.Retry = -1 // not at all
	}
	return problems
}

func (s streams) pull(cmd *cobra.Command, o *pullOptions) error {
	bar := newProgress(s.err, "pull")
	defer bar.end()
	note := func(text string) { fmt.Fprintf(bar, "%s: %s\n", cmd.CommandPath(), printable(text)) }
	var verify *progress // of what an earlier pull has left
	defer func() {
		if verify != nil {
			verify.end()
		}
	}()
	o.out.Verifying = func(done, total int64) {
		if verify == nil {
			verify = newProgress(s.err, "verify")
		}
		verify.update(done, total)
	}
	o.out.Found = func(f checkpoint.Found) {
		bar.skip(f.Bytes)
		note(foundText(f))
	}
	var sum *checkpoint.Summary
	var by routes
	err := o.from.with(cmd, s, bar, func(ctx context.Context, c *server.Client) (err error) {
		o.req.Progress = func(p checkpoint.Progress) {
			if p.Bytes >= p.TotalBytes && p.Tensors < p.Total {
				return // a tensor without bytes is yet to come
			}
			bar.updateWith(p.Bytes, p.TotalBytes, func() string { return tensorsText(p, c.Received(), deviceOf(c)) })
		}
		o.req.Interrupted = func(i checkpoint.Interruption) { note(interruptionText(i, c.Target())) }
		if o.out.Out == toStdout {
			sum, err = c.Puller().Stream(ctx, o.req, s.out)
		} else {
			sum, err = c.Puller().Save(ctx, o.req, o.out)
		}
		if err == nil {
			by = routesOf(sum, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	if sum.Unsynced != nil {
		note(unsyncedText(sum.Unsynced))
	}
	if o.out.Out == toStdout {
		s.out = s.err // the result follows the progress
	}
	if o.json {
		return writeJSON(s.out, pullRecordOf(sum, by))
	}
	return s.writeSummary(sum, by)
}

// interruptionText says what interrupted a pull, or that it goes on.
func interruptionText(i checkpoint.Interruption, from string) string {
	if i.Err == nil {
		return fmt.Sprintf("%s answers again after %v; the pull goes on", from, i.Lasted.Round(time.Second/10))
	}
	if i.Retry == 0 { // of a watch
		return status.From(i.Err).Message() + "; waiting"
	}
	return fmt.Sprintf("%s; trying again for %v", status.From(i.Err).Message(), i.Retry)
}

// unsyncedText says that the files are there, and what may become of them.
func unsyncedText(err error) string {
	return fmt.Sprintf("the files are complete and on the disk, but their names may be lost with the power: %s", status.From(err).Message())
}

// foundText says what an earlier pull has left.
func foundText(f checkpoint.Found) string {
	if f.Err != nil {
		return fmt.Sprintf("%s is begun anew: %s", f.Path, status.From(f.Err).Message())
	}
	return fmt.Sprintf("%s has %s from an earlier pull, which are not transferred again", f.Path, byteText(float64(f.Bytes)))
}

// pullRecord is the result of a pull in JSON. Fields that benchmarks have, too, have
// the same names.
type pullRecord struct {
	Publication     string   `json:"publication"`
	Version         string   `json:"version"`
	Tensors         int      `json:"tensors"`
	Bytes           int64    `json:"bytes"`
	Resumed         int64    `json:"resumed_bytes"` // of bytes, from an earlier pull
	Seconds         float64  `json:"seconds"`
	TransferSeconds float64  `json:"transfer_seconds"`
	Rate            float64  `json:"gbytes_per_second"` // of the transfer only
	Digest          string   `json:"digest"`
	Verified        bool     `json:"verified"`
	Files           []string `json:"files"`
	routes
}

// routes tells what carried the tensors: the number for each transport, the device of verbs and
// its provider if there is one, all that the pull has recorded, and why there is no channel, if there is none.
type routes struct {
	By       map[string]int `json:"tensors_by_transport"`
	Provider string         `json:"provider,omitempty"`
	Device   string         `json:"device,omitempty"`
	Carried  []carried      `json:"carried"`
	Reason   string         `json:"reason,omitempty"`
}

// carried is what one transport has carried: tensors, or pieces of them, and sums over these.
type carried struct {
	Transport string  `json:"transport"`
	Device    string  `json:"device,omitempty"`
	Tensors   int     `json:"tensors"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"` // from their requests on; several are under way at once
	Attempts  int     `json:"attempts"`
}

func routesOf(sum *checkpoint.Summary, c *server.Client) routes {
	w := routes{By: make(map[string]int), Carried: []carried{}}
	for _, one := range sum.Carried {
		w.Carried = append(w.Carried, carried{one.Transport, one.Device, one.Tensors, one.Bytes, one.Duration.Seconds(), one.Attempts})
		w.By[one.Transport] += one.Tensors
		w.Device = cmp.Or(w.Device, one.Device)
	}
	for _, s := range c.Devices() {
		if s.Choice.Device == w.Device {
			w.Provider = s.Name()
		}
	}
	if w.By[server.TransportGRPC] > 0 {
		w.Reason = reasonOf(c)
	}
	return w
}

// reasonOf returns why there is no channel to the server; empty if there is one, or verbs is not used.
func reasonOf(c *server.Client) string {
	links := c.Links()
	if len(links) == 0 || c.Transport() == server.TransportGRPC || links[0].Route == server.TransportVerbs {
		return ""
	}
	reason := links[0].Reason
	if code, text, ok := strings.Cut(reason, ": "); ok && !strings.Contains(code, " ") {
		return text
	}
	return reason
}

// tensorsText says how many tensors have come, and over which transports: "72/160 tensors
// over verbs (tcp0)", with the most used one first. device is that of the channel; empty for none.
func tensorsText(p checkpoint.Progress, by map[string]int, device string) string {
	text := fmt.Sprintf("%d/%d tensors", p.Tensors, p.Total)
	names := mostUsed(by)
	for i, name := range names {
		if name == server.TransportVerbs && device != "" {
			names[i] += " (" + device + ")"
		}
	}
	if len(names) > 0 {
		text += " over " + strings.Join(names, ", ")
	}
	return text
}

// deviceOf returns the device of the channel to the server; empty without one.
func deviceOf(c *server.Client) string {
	for _, l := range c.Links() {
		return l.Device
	}
	return ""
}

// mostUsed returns the names of transports, the one with the most tensors first.
func mostUsed(by map[string]int) []string {
	return slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), strings.Compare(a, b))
	})
}

// String lists what carried the tensors, the one with the most first: "158 over verbs (roce-lo), 2 over grpc", and
// after gRPC why it was not verbs.
func (w routes) String() string {
	var words []string
	for _, c := range w.Carried {
		text := fmt.Sprintf("%d over %s", c.Tensors, c.Transport)
		switch {
		case c.Device != "":
			text += " (" + c.Device + ")"
		case c.Transport == server.TransportGRPC && w.Reason != "":
			text += " (" + w.Reason + ")"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

func pullRecordOf(sum *checkpoint.Summary, by routes) pullRecord {
	return pullRecord{
		Publication: sum.Publication.Name, Version: sum.Publication.Version,
		Tensors: sum.Tensors, Bytes: sum.Bytes, Resumed: sum.Resumed,
		Seconds: sum.Total.Seconds(), TransferSeconds: sum.Transfer.Seconds(), Rate: sum.BytesPerSecond() / 1e9,
		Digest: sum.Digest, Verified: sum.Verified, Files: sum.Files, routes: by,
	}
}

func (s streams) writeSummary(sum *checkpoint.Summary, by routes) error {
	columns := [][2]string{
		{"PUBLICATION", sum.Publication.Name}, {"TENSORS", strconv.Itoa(sum.Tensors)}, {"BYTES", strconv.FormatInt(sum.Bytes, 10)},
	}
	if sum.Resumed > 0 { // of the bytes, from an earlier pull; the time and the rate are of the others
		columns = append(columns, [2]string{"RESUMED", strconv.FormatInt(sum.Resumed, 10)})
	}
	columns = append(columns, [][2]string{
		{"TIME", secondsText(sum.Total)}, {"TRANSFER", secondsText(sum.Transfer)},
		{"GB/S", strconv.FormatFloat(sum.BytesPerSecond()/1e9, 'f', 2, 64)}, {"DIGEST, CHECKED", sum.Digest}, {"ROUTE", by.String()},
	}...)
	var heads, row []string
	for _, c := range columns {
		heads, row = append(heads, c[0]), append(row, c[1])
	}
	if err := writeTable(s.out, heads, row); err != nil {
		return err
	}
	return s.writeFiles(sum.Files)
}
