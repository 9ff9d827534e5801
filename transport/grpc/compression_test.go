package grpctransport

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestCompressedCalls: a client that compresses its messages with gzip, as TensorFlow does with
// RPCOptions.compression_algorithm, is served. The package itself links gzip.
func TestCompressedCalls(t *testing.T) {
	var c testCluster
	server := c.start(t, 0, nodeOptions{})
	conn, err := grpc.NewClient(server.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var resp tfpb.GetStatusResponse
	if err := conn.Invoke(t.Context(), "/tensorflow.WorkerService/GetStatus", &tfpb.GetStatusRequest{}, &resp, grpc.UseCompressor("gzip")); err != nil {
		t.Error(err)
	}
}
