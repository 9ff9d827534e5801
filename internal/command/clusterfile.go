package command

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// clusterFile is --cluster-file: the file with the cluster, whose changes serve follows.
type clusterFile struct {
	path string
	spec *cluster.Spec // what load has read
}

func (f *clusterFile) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "cluster-file", "", "`file` with the cluster, in place of --cluster; serve follows its changes (docs/library.md, SetCluster)")
}

// load sets the flag --cluster to what the file has.
func (f *clusterFile) load(cmd *cobra.Command) error {
	if f.path == "" {
		return nil
	}
	flag := cmd.Flags().Lookup(config.ClusterKey)
	if flag.Changed {
		return errors.New("--cluster and --cluster-file are given; leave one of the two out")
	}
	spec, err := sources.ReadCluster(f.path)
	if err != nil {
		return err
	}
	f.spec = spec
	return cmd.Flags().Set(flag.Name, spec.String())
}

// follow has set called with each cluster that the file gets, until stop is called. It reads the file every
// clusterPoll, so it also sees one that is renamed onto it, and symbolic links that change, as those of a ConfigMap do.
func (f *clusterFile) follow(ctx context.Context, set func(context.Context, map[string][]string) error, log *slog.Logger) (stop func()) {
	if f.path == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &clusterWatch{path: f.path, read: sources.ReadCluster, set: set, log: log, taken: f.spec}
	var work sync.WaitGroup
	work.Go(func() {
		ticks := time.NewTicker(clusterPoll)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				w.poll(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

// clusterWatch takes a cluster that two polls in a row have found, and one without some of the present tasks when
// removePolls have: a file that is being written is not taken. One in lines is a smaller cluster after each of them.
type clusterWatch struct {
	path string
	read func(path string) (*cluster.Spec, error)
	set  func(context.Context, map[string][]string) error
	log  *slog.Logger

	seen  *cluster.Spec // at the last poll; nil before
	same  int           // polls in a row that have found it
	taken *cluster.Spec // by set, or at the start
	told  string        // why the file is not taken, as it was logged
}

func (w *clusterWatch) poll(ctx context.Context) {
	spec, err := w.read(w.path)
	switch {
	case err != nil:
		w.seen = nil
	case w.taken != nil && spec.Equal(w.taken):
		w.seen, w.told = spec, ""
		return
	case w.seen == nil || !spec.Equal(w.seen):
		w.seen, w.same = spec, 1
		return
	default:
		if w.same++; w.same < w.polls(spec) {
			return
		}
		err = w.set(ctx, spec.Lists())
	}
	switch {
	case ctx.Err() != nil: // the server stops
	case err == nil:
		w.taken, w.told = spec, ""
	case err.Error() != w.told:
		w.told = err.Error()
		w.log.Warn("the cluster file is not taken; the cluster stays as it was", "path", w.path, "reason", err)
	}
}

// polls returns how many polls in a row have to find a cluster.
func (w *clusterWatch) polls(spec *cluster.Spec) int {
	if w.taken != nil {
		for _, task := range w.taken.Tasks() {
			if _, stays := spec.Address(task); !stays {
				return removePolls
			}
		}
	}
	return addPolls
}
