package server

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestServicesThatAreNotServedSayWhatToDo: programs of TensorFlow that ask a task for a master or the eager runtime learn what
// works, and a method of a stranger's name is no label of a metric.
func TestServicesThatAreNotServedSayWhatToDo(t *testing.T) {
	r := prometheus.NewRegistry()
	conn := dialPlainly(t, start(t, settings(), Options{Registerer: r}).Addr().String())
	for method, text := range map[string]string{
		"/tensorflow.MasterService/CreateSession":                                      "give the Session the target of a tf.distribute.Server",
		"/tensorflow.grpc.MasterService/CreateSession":                                 "give the Session the target of a tf.distribute.Server",
		"/tensorflow.eager.EagerService/CreateContext":                                 "not TensorFlow's eager runtime",
		"/tensorflow.CoordinationService/RegisterTask":                                 "no coordination service",
		"/tensorflow.WorkerService/Levitate":                                           `the method "/tensorflow.WorkerService/Levitate" is not served`,
		"/other.MasterService/CreateSession":                                           "is not served",
		"/tensorflow." + strings.Repeat("long", 1000) + ".MasterService/CreateSession": "this task has no master",
		"/unserved.Service/" + strings.Repeat("long", 1000):                            "longlo\" is not served",
	} {
		err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
		if grpcstatus.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), text) || len(err.Error()) > 600 {
			t.Errorf("%.60s: %v", method, err)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, name := range []string{"MasterService", "unserved", "Levitate"} {
			if strings.Contains(f.String(), name) {
				t.Errorf("%s has the label %s", f.GetName(), name)
			}
		}
	}
}
