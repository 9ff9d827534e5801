package rendezvous

import "time"

// Arrival tells how a value came to its receiver.
type Arrival struct {
	// Transport is the name of the transport that has carried the whole content: "grpc" or "verbs";
	// TransportLocal for a value of this process. What an earlier attempt over another transport
	// had brought was dropped.
	Transport string `json:"transport"`
	// Device is the RDMA device of this process that has received the content, such as mlx5_0;
	// empty for other transports.
	Device string `json:"device,omitempty"`
	// Bytes is the size of the content.
	Bytes int64 `json:"bytes"`
	// Duration is the time from the request to the value, and includes the time until the
	// value was sent, and all attempts. It is 0 for a value of this process.
	Duration time.Duration `json:"duration_ns"`
	// Attempts counts the requests for the value, the one that has brought it included. It is
	// 1 for a value of this process.
	Attempts int `json:"attempts"`
}

// TransportLocal is the Transport of values of the same process.
const TransportLocal = "local"

// NewArgs returns the Args of a value that came as a says, for a Remoter. a must not change any
// more.
func (a *Arrival) NewArgs() Args { return Args{Device: a} }

// Arrival returns how the value came. For a value that is the result of a receive from another
// process it is what the transport has recorded when the content had come.
func (v Value) Arrival() Arrival {
	if a, ok := v.SendArgs.Device.(*Arrival); ok {
		return *a
	}
	a := Arrival{Transport: TransportLocal, Attempts: 1}
	if v.Tensor != nil {
		a.Bytes = v.Tensor.Size()
	}
	return a
}

// withoutArrival returns the Args of a value that is sent. One that came from another process
// and is sent on has a new arrival at its receiver.
func (a Args) withoutArrival() Args {
	if _, ok := a.Device.(*Arrival); ok {
		return Args{}
	}
	return a
}
