// Package grpctransport moves tensors over gRPC: the server and the client side
// of TensorFlow's WorkerService, and RpcRemoteRendezvous, the transport made of
// them.
//
//	receiver                                     sender
//	rendezvous.BaseRemote                        transport.Worker
//	      │                                            ▲
//	RpcRemoteRendezvous (delivery.Requester)     Register: WorkerService
//	      │ one wire per peer                          │  RecvTensor in place
//	      ├── WorkerService/RecvTensor ────────────────┤
//	      ├── WorkerService/MarkRecvFinished ──────────┤
//	      ├── Peers/Hello, Peers/Cancel ───────────────┤  transport.ResponseCache
//	      └── Chunks/Fetch ────────────────────────────┘
//
// A RecvTensorResponse is not built as a message. The sender writes these bytes
// and then lends gRPC the tensor's own memory; the receiver copies that memory,
// out of the frames that it came in, once into memory from its Allocator:
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
// which is the order of TensorFlow's writer, byte for byte. For strings, resources
// and variants there the whole tensor comes first. Any order is understood; an
// unusual one is parsed by the generated code.
//
// A tensor above the server's unary limit goes to clients that say they take it
// (header tryst-caps: chunks) as dtype, shape and a ticket, and its content by
// Chunks/Fetch in pieces, from any byte on (ARCHITECTURE.md section 6c).
package grpctransport
