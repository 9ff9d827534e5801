// Package grpctransport moves tensors over gRPC. It has the server and the client of
// TensorFlow's WorkerService, and RpcRemoteRendezvous, the transport built on them.
//
//	receiver                                     sender
//	rendezvous.BaseRemote                        transport.Worker
//	      │                                            ▲
//	RpcRemoteRendezvous (delivery.Requester)     Register: WorkerService
//	      │ one Conn per peer                          │  RecvTensor in place
//	      ├── WorkerService/RecvTensor ────────────────┤
//	      ├── WorkerService/MarkRecvFinished ──────────┤
//	      ├── Peers/Hello, Peers/Cancel ───────────────┤  transport.ResponseCache
//	      └── Chunks/Fetch ────────────────────────────┘
//
// A RecvTensorResponse is not built as a protobuf message. The sender writes the bytes
// below and lends gRPC the tensor's own memory for the content. The receiver copies the
// content once, from gRPC's frames into memory from its Allocator:
//
//	10 01          is_dead (2), when true
//	18 <varint>    send_start_micros (3), always
//	22 <len> ...   transport_options (4), when there are any
//	28 01          require_ack (5), when true
//	0a <len>       tensor (1), last
//	   08 <varint>    dtype (1)
//	   12 <len> ...   tensor_shape (2), absent for a scalar
//	   22 <len> ...   tensor_content (4): the memory
//
// These are the bytes of TensorFlow's writer, in its order. For strings, resources and
// variants TensorFlow writes the tensor first, and so does this package. The receiver
// accepts any order; the generated code parses the unusual ones.
//
// A client that sends the header "tryst-caps: chunks" gets a tensor above the server's
// unary limit as dtype, shape and a ticket. It fetches the content by Chunks/Fetch, in
// chunks and from any byte on (ARCHITECTURE.md section 8).
package grpctransport
