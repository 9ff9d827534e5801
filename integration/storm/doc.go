// Package storm holds a test that looks for values that are lost, received twice or wrong while
// processes are killed, stopped and restarted, and their connections cut. It has no code of its
// own.
//
//	make storm                                # a minute: over gRPC, roce, TCP, shared memory, all of them
//	make storm STORM_TIME=10m                 # longer
//	make storm STORM_SEED=7 STORM_TEST=roce   # one of the five again
//
//	the test ──── commands by pipe ───► node (this binary), 4 tasks, each publishes a file
//	 │  │ SIGKILL, SIGTERM, SIGSTOP         │ a log of its sends and receives
//	 │  └─ cut, held, refused, slow ──────► proxy of each task, for gRPC and queue pairs over TCP
//	 │                                      │ UDP packets dropped by a socket filter, for roce
//	 │                                      │ sockets shut down, for shared memory
//	 ├────────────────────────────────► puller (this binary): pulls the files again and again
//	 └────────────────────────────────► watcher (this binary): watches the versions that the tasks make
//
// Each task makes versions of two publications at random times, in memory, and withdraws and publishes them again.
// Watchers take them into buffers and in place, quickly and slowly, and are cancelled and begin again. Each block
// of a version says which one it is of. Tasks leave the clusters of others, move to another port and come back.
//
// In the storm with all devices each life of a task has other ones, so that routes come and go by
// faults and by restarts.
//
// The test gives steps to the tasks. What a step sends, and how it is received, follows from the
// seed and the number of the step alone. A node writes one line before each action and one after
// it, each by one write call, so that a kill loses at most the line of what was under way. When
// the storm is over everything is repaired and each step must end. Then the checker reads all
// lines; its rules are those of ARCHITECTURE.md section 6, and check_test.go says them one by
// one.
//
// The same seed gives the same steps and the same faults at the same times. What meets what is
// up to the machine, so a failure may need several runs to come back. Its report has the history
// of the value.
package storm
