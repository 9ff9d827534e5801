package transport

import (
	"slices"
	"strconv"
	"strings"
)

// PlainText removes gRPC's wrapping from the text of a connection error, so that the text of
// the network error remains:
//
//	connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:2222: connect: connection refused"
//	dial tcp 10.0.0.1:2222: connect: connection refused
//
// It keeps the text around the wrapping. It also explains gRPC's error for the response of a web
// server over HTTP/2. It returns any other text unchanged.
func PlainText(s string) string {
	const wrapping, httpStatus = `connection error: desc = `, "unexpected HTTP status code received from server: "
	if code, rest, ok := strings.Cut(strings.TrimPrefix(s, httpStatus), "; "); ok && strings.HasPrefix(s, httpStatus) && strings.Contains(rest, "unexpected content-type") {
		if IsGatewayStatus(code) {
			return "a gateway answered with the HTTP status " + code + ", not a gRPC server"
		}
		return "the server speaks HTTP/2 but not gRPC (it answered with the HTTP status " + code + "): check the port"
	}
	before, rest, ok := strings.Cut(s, wrapping)
	if !ok {
		return s
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return s
	}
	inner, err := strconv.Unquote(quoted)
	if err != nil {
		return s
	}
	for _, where := range []string{"transport: ", "Error while dialing: ", "authentication handshake failed: ", "error reading server preface: ", "failed to write client preface: "} {
		inner = strings.TrimPrefix(inner, where)
	}
	return strings.TrimSuffix(before, "latest balancer error: ") + inner + rest[len(quoted):]
}

// IsGatewayStatus reports whether an HTTP status, as "502 (Bad Gateway)", is one of a gateway whose
// server is down or busy. For each of these gRPC's code is Unavailable.
func IsGatewayStatus(httpStatus string) bool {
	switch code, _, _ := strings.Cut(httpStatus, " "); code {
	case "429", "502", "503", "504":
		return true
	}
	return false
}

// settingWords are in the errors of a connection that a user must correct: of a wrong port, or of
// wrong settings of TLS. Package transport/grpc makes them (explain.go there), and PlainText.
// Their types are lost within gRPC, which keeps only texts.
var settingWords = []string{
	"check the port", ": set tls.", "check tls.cert", "renew tls.cert", ": tls.cert must be",
	"does not speak TLS, and this process", ") is not valid: ",
}

// WrongSetting reports whether the text of a connection error is about a wrong port or a wrong
// setting, so that trying again is useless. It must not be called with what a server said.
func WrongSetting(text string) bool {
	return slices.ContainsFunc(settingWords, func(w string) bool { return strings.Contains(text, w) })
}
