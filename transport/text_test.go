package transport

import "testing"

func TestPlainText(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: connection refused"`:                  "dial tcp 10.0.0.1:1: connect: connection refused",
		`connection error: desc = "transport: authentication handshake failed: tls: \"x\""`:                                            `tls: "x"`,
		`waited: connection error: desc = "transport: a" and on`:                                                                       "waited: a and on",
		`connection error: desc = not quoted`:                                                                                          `connection error: desc = not quoted`,
		`unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type "text/plain"`:  "the server speaks HTTP/2 but not gRPC (it answered with the HTTP status 404 (Not Found)): check the port",
		`unexpected HTTP status code received from server: 502 (Bad Gateway); transport: received unexpected content-type "text/html"`: "a gateway answered with the HTTP status 502 (Bad Gateway), not a gRPC server",
		"unexpected HTTP status code received from server: 503 (Service Unavailable)":                                                  "unexpected HTTP status code received from server: 503 (Service Unavailable)",
		`latest balancer error: connection error: desc = "transport: Error while dialing: h:1 has gone"`:                               "h:1 has gone",
		"the step was aborted": "the step was aborted",
	} {
		if got := PlainText(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}
