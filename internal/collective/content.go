package collective

import (
	"google.golang.org/protobuf/encoding/protowire"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// extraURL is the type of transport_options in a response to RecvBuf.
const extraURL = "type.googleapis.com/tensorflow.RecvBufRespExtra"

// fieldContent is tensor_content of RecvBufRespExtra.
const fieldContent = 1

// appendContent appends a RecvBufRespExtra with the content in chunks of so many bytes; in one
// chunk when chunk is not positive. It is written by hand, since generated code would copy each
// chunk twice.
func appendContent(b, content []byte, chunk int) []byte {
	if chunk <= 0 {
		chunk = max(1, len(content))
	}
	if b == nil {
		chunks := (len(content) + chunk - 1) / chunk
		b = make([]byte, 0, len(content)+chunks*(1+protowire.SizeVarint(uint64(chunk))))
	}
	for len(content) > 0 {
		n := min(chunk, len(content))
		b = protowire.AppendTag(b, fieldContent, protowire.BytesType)
		b = protowire.AppendBytes(b, content[:n])
		content = content[n:]
	}
	return b
}

// copyContent copies the content of a response into dst. A content of another size is Internal.
func copyContent(dst []byte, resp *tfpb.RecvBufResponse) error {
	extra := resp.GetTransportOptions()
	if extra == nil && len(dst) == 0 {
		return nil
	}
	if extra.GetTypeUrl() != extraURL {
		return status.Errorf(status.Internal, "the response to RecvBuf has transport_options of the type %q; want %q", extra.GetTypeUrl(), extraURL)
	}
	total := 0
	for b := extra.GetValue(); len(b) > 0; {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return badContent(n)
		}
		b = b[n:]
		if number != fieldContent || wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
				return badContent(n)
			}
			b = b[n:]
			continue
		}
		part, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return badContent(n)
		}
		if total < len(dst) {
			copy(dst[total:], part)
		}
		total += len(part)
		b = b[n:]
	}
	if total != len(dst) {
		return status.Errorf(status.Internal, "Tensor Size Mismatch: RecvBufResponse returned %d bytes where to_tensor expected %d", total, len(dst))
	}
	return nil
}

func badContent(n int) error {
	return status.Errorf(status.Internal, "cannot parse RecvBufRespExtra of the response to RecvBuf: %w", protowire.ParseError(n))
}
