package server

import (
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// TestSendToATaskOrDeviceThatIsNotInTheCluster: nobody could receive the value, and Recv from there
// has the same code.
func TestSendToATaskOrDeviceThatIsNotInTheCluster(t *testing.T) {
	eachWay(t, func(t *testing.T, recv recvFunc) {
		a, b := twoTasks(t)
		x := float(t, 1)
		defer x.Release()
		wantError(t, wait(t, recv(a, 1, b.Task().String()+"/device:GPU:0", "x"), "a receive that reaches the peer").err, status.NotFound)
		for to, text := range map[string]string{
			"/job:worker/task:9":                                "the cluster has no task /job:worker/replica:0/task:9",
			"/job:ps/task:0":                                    "the cluster has no task /job:ps/replica:0/task:0",
			"/job:worker/replica:1/task:1":                      "/job:worker/replica:1/task:1",
			"/job:client/replica:0/task:7":                      "/job:client/replica:0/task:7",
			"/job:worker/replica:0/task:9/device:CPU:0":         "/job:worker/replica:0/task:9",
			b.Task().String() + "/device:GPU:0":                 "has no device " + b.Task().String() + "/device:GPU:0",
			b.Task().String() + "/device:CPU:1":                 "has no device " + b.Task().String() + "/device:CPU:1",
			a.Task().String() + "/device:GPU:0":                 "has no device " + a.Task().String() + "/device:GPU:0",
			"/job:worker/replica:0/task:0/device:XLA_CPU_JIT:0": "/job:worker/replica:0/task:0/device:XLA_CPU_JIT:0",
		} {
			for _, dead := range []bool{false, true} {
				wantError(t, a.Send(1, to, "x", x, dead), status.NotFound, "Send", text)
			}
			wantError(t, wait(t, recv(a, 1, to, "x"), "a receive from "+to).err, status.NotFound)
		}
		for _, to := range []string{b.Task().String(), b.Device().String(), a.Task().String(), a.Device().String()} {
			if err := a.Send(1, to, "y", x, false); err != nil {
				t.Errorf("to %s: %v", to, err)
			}
		}
		a.EndStep(1)
	})
}

// TestSendToADeviceOfAPeerOfAnotherKind: a TensorFlow task has other devices than CPU:0. Before it
// has listed them, each may exist.
func TestSendToADeviceOfAPeerOfAnotherKind(t *testing.T) {
	a, b := twoTasks(t)
	x := float(t, 1)
	defer x.Release()
	gpu := cluster.Device{Task: b.Task(), Type: "GPU"}
	if err := a.Send(1, gpu.String(), "before", x, false); err != nil {
		t.Errorf("to a task that has not answered yet: %v", err)
	}
	a.incarnations.List(b.Task(), b.Device(), gpu)
	if err := a.Send(1, gpu.String(), "listed", x, false); err != nil {
		t.Errorf("to a device that the task has: %v", err)
	}
	a.incarnations.List(b.Task(), b.Device())
	wantError(t, a.Send(1, gpu.String(), "unlisted", x, false), status.NotFound, "has no device "+gpu.String())
	a.EndStep(1)
}

// TestSendWithoutACluster: a process that knows no peers may still have some, which dial it. It knows
// its own devices.
func TestSendWithoutACluster(t *testing.T) {
	s := start(t, settings(), Options{})
	x := float(t, 1)
	defer x.Release()
	for _, to := range []string{"/job:worker/task:9", "/job:worker/replica:0/task:9/device:GPU:0"} {
		if err := s.Send(1, to, "x", x, false); err != nil {
			t.Errorf("to %s: %v", to, err)
		}
	}
	gpu := s.Task().String() + "/device:GPU:0"
	wantError(t, s.Send(1, gpu, "x", x, false), status.NotFound, "Send", gpu)
	s.EndStep(1)
}

// TestOwnKeysReachProcessesBeyondTheCluster: a rendezvous takes keys for clients, which are in no
// cluster.
func TestOwnKeysReachProcessesBeyondTheCluster(t *testing.T) {
	a, _ := twoTasks(t)
	x := float(t, 1)
	defer x.Release()
	key, err := rendezvous.NewKey(a.Device(), a.Incarnation(), cluster.DeviceOf(cluster.Task{Job: "client", Index: 7}), "x", rendezvous.FrameIter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Rendezvous(1).Send(key, rendezvous.Args{}, x, false); err != nil {
		t.Error(err)
	}
	a.EndStep(1)
}
