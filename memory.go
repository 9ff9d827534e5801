package tryst

import "github.com/tryst-rdma/tryst/tensor"

// Allocator returns an allocator of memory that tensors are received into (RecvInto, Into), and sent
// from, without a copy: registered memory with the transport verbs, that of WithAllocator with gRPC.
// So a program need not know the transport:
//
//	t, err := tensor.Make[float32](s.Allocator(), 1024, 4096) // the caller's, until t.Release()
//
// It returns ResourceExhausted beyond Config.RDMA.ArenaLimit, which this memory shares with what Recv
// receives. Registering more memory may take milliseconds, so allocate before the loop, and use the
// same tensors again. Tensors in it stay readable when the device goes, and after Close of the server.
//
// Over libibverbs a peer that a transfer is under way with may write to any memory of this allocator
// (docs/security.md). Over roce it has a right to its own destination only.
func (s *Server) Allocator() tensor.Allocator { return s.s.Allocator() }

// SendAllocator is Allocator for tensors that are only sent or published: no peer may write there.
func (s *Server) SendAllocator() tensor.Allocator { return s.s.SendAllocator() }

// Registered reports whether the memory of t is registered with the RDMA device in use, so that verbs
// sends it, and receives into it, without a copy. It is false with gRPC, and while there is no device.
func (s *Server) Registered(t *tensor.Tensor) bool { return s.s.Registered(t) }

// Received returns how many tensors this server has received from other processes, by transport.
// Received()["grpc"] == 0 says that none went over gRPC.
func (s *Server) Received() map[string]int { return s.s.Received() }

// Sent returns how many tensors this server has sent to other processes, by transport, as responses to
// their requests; one that was sent again after a break counts each time. Sent()["grpc"] == 0 says that
// none went over gRPC. Read it when the Delivery of the last one is done.
func (s *Server) Sent() map[string]int { return s.s.Sent() }

// Links returns the link to each peer: the other tasks of the cluster, and the clients that have
// come and are remembered, sorted by task.
func (s *Server) Links() []Link { return s.s.Links() }

// Allocator is Server.Allocator, for pulls into memory of the caller's (Into).
func (c *Client) Allocator() tensor.Allocator { return c.c.Allocator() }

// Registered is Server.Registered.
func (c *Client) Registered(t *tensor.Tensor) bool { return c.c.Registered(t) }

// Received returns how many tensors this client has pulled by each transport, as Server.Received.
func (c *Client) Received() map[string]int { return c.c.Received() }

// Links returns the link to the server. There is none before the server has told its name, which it
// does when it is dialed, or with the first tensor.
func (c *Client) Links() []Link { return c.c.Links() }
