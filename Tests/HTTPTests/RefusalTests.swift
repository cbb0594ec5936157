import Foundation
import HTTPTypes
import Testing

@testable import HTTP

@Suite("Refused requests")
struct RefusalTests {
  static let host = "Host: x\r\n"
  static let chunked = "Transfer-Encoding: chunked\r\n"

  @Test(
    "a request is refused if its framing is ambiguous or its syntax is invalid",
    arguments: [
      "POST / HTTP/1.1\r\n\(host)Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\n\(host)Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\n\(host)Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
      "POST / HTTP/1.1\r\n\(host)Content-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
      "POST / HTTP/1.1\r\n\(host)\(chunked)\(chunked)\r\n0\r\n\r\n",
      "POST / HTTP/1.0\r\n\(host)Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\u{1}b\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nFoo: a\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
      "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
      "GET /a\tb HTTP/1.1\r\n\(host)\r\n",
      "GET /\u{e9} HTTP/1.1\r\n\(host)\r\n",
      "GET /a#b HTTP/1.1\r\n\(host)\r\n",
      "GET a HTTP/1.1\r\n\(host)\r\n",
      "GET * HTTP/1.1\r\n\(host)\r\n",
      "GET ftp://h/ HTTP/1.1\r\n\(host)\r\n",
      "GET http:///p HTTP/1.1\r\n\(host)\r\n",
      "GET http://u@h/p HTTP/1.1\r\n\(host)\r\n",
      "CONNECT h/443 HTTP/1.1\r\n\(host)\r\n",
      "G(T / HTTP/1.1\r\n\(host)\r\n",
      "\(String(repeating: "G", count: 64)) / HTTP/1.1\r\n\(host)\r\n",
    ])
  func malformed(request: String) async throws {
    try await expect("malformed", request)
  }

  @Test(
    "broken lines are refused by a strict library itself, in HTML or by closing",
    arguments: [
      "POST / HTTP/1.1\r\n\(host)Content-Length : 3\r\n\r\nabc",
      "GET / HTTP/1.1\r\n\(host)Foo : x\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo\t: x\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host): x\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)F(o: x\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\0b\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\0\0Bar: b\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\rb\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\r\n b\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\r\n\tb\r\nBar: c\r\n\r\n",
      "POST / HTTP/1.1\r\n\(host)Transfer-Encodi: chunked\r\n ng\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\n Foo: a\r\n\(host)\r\n",
      "GET / HTTP/1.1\n\(host)\r\n",
      "GET / HTTP/1.1\r\nHost: x\nFoo: a\r\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\n\r\n",
      "GET / HTTP/1.1\r\n\(host)Foo: a\r\n\n",
      "GET / HTTP/1.1\r\n\(host)\n",
      "GET  / HTTP/1.1\r\n\(host)\r\n",
      "GET /  HTTP/1.1\r\n\(host)\r\n",
      "GET /a b HTTP/1.1\r\n\(host)\r\n",
      "GET /a\0b HTTP/1.1\r\n\(host)\r\n",
    ])
  func brokenLines(request: String) async throws {
    guard MicroHTTPDLibrary.isStrict else { return try await expect("malformed", request) }
    let answer = try await Served.with(handler: { _ in .text("handled") }) { port in
      let client = try RawClient(port)
      try client.send(request)
      return try client.readToEnd()
    }
    #expect(answer.isEmpty || answer.hasPrefix("HTTP/1.1 400 "), "\(answer)")
    #expect(answer.ranges(of: "HTTP/1.1 ").count <= 1 && !answer.contains("handled"), "\(answer)")
  }

  @Test(
    "a refusal says what is wrong, even if the library refuses the request first",
    arguments: [
      ("the Host field is missing", "GET / HTTP/1.1\r\n\r\n"),
      ("there is more than one Host field", "GET / HTTP/1.1\r\n\(host)\(host)\r\n"),
      ("Host must be a host with an optional port", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
      (
        "Transfer-Encoding and Content-Length exclude each other",
        "POST / HTTP/1.1\r\n\(host)Content-Length: 3\r\n\(chunked)\r\n0\r\n\r\n"
      ),
      (
        "there is more than one Content-Length field",
        "POST / HTTP/1.1\r\n\(host)Content-Length: 3\r\nContent-Length: 5\r\n\r\nabc"
      ),
      (
        "there is more than one Transfer-Encoding field",
        "POST / HTTP/1.1\r\n\(host)\(chunked)\(chunked)\r\n0\r\n\r\n"
      ),
      (
        "Transfer-Encoding is not allowed in HTTP/1.0", "POST / HTTP/1.0\r\n\(chunked)\r\n0\r\n\r\n"
      ),
      (
        "Content-Length is not a number",
        "POST / HTTP/1.1\r\n\(host)Content-Length: 3,3\r\n\r\nabc"
      ),
    ])
  func detail(detail: String, request: String) async throws {
    try await expect("malformed(detail: \"\(detail)\")", request)
  }

  @Test("a blank after Transfer-Encoding is refused if the library does not remove it")
  func blankBehindCoding() async throws {
    let answer = try await Served.with(handler: { _ in .text("handled") }) { port in
      try RawClient(port).exchange(
        "POST / HTTP/1.1\r\n\(Self.host)Transfer-Encoding: chunked \t\r\n\r\n0\r\n\r\n")
    }
    #expect(answer.body == (MicroHTTPDLibrary.isStrict ? "handled" : "unknownTransferCoding"))
  }

  @Test(
    "unsupported fields and exceeded limits are refused with their own reason",
    arguments: [
      ("unknownTransferCoding", "Transfer-Encoding: xchunked"),
      ("unknownTransferCoding", "Transfer-Encoding: gzip, chunked"),
      ("unknownTransferCoding", "Transfer-Encoding: identity"),
      ("unknownExpectation", "Expect: 200-ok"),
      ("bodyTooLarge(limit: 33554432)", "Content-Length: 33554433"),
      ("headerTooLarge(limit: 12288)", "Foo: \(String(repeating: "x", count: 12288))"),
      ("headerTooLarge(limit: 100)", String(repeating: "F: 1\r\n", count: 99) + "F: 1"),
      // The library stores an entry per cookie in the connection's memory.
      ("headerTooLarge(limit: 12288)", "Cookie: \(String(repeating: "a=b; ", count: 2200))a=b"),
    ])
  func unknown(refusal: String, field: String) async throws {
    try await expect(refusal, "POST / HTTP/1.1\r\n\(Self.host)\(field)\r\n\r\n")
  }

  @Test("a target that is too long is refused")
  func longTarget() async throws {
    let target = "/" + String(repeating: "a", count: 8192)
    try await expect("targetTooLong(limit: 8192)", "GET \(target) HTTP/1.1\r\n\(Self.host)\r\n")
  }

  @Test("a refusal has the request's Origin", arguments: ["33554433", "x"])
  func origin(length: String) async throws {
    let origin = try await Served.with(handler: { _ in .text("handled") }) { port in
      try RawClient(port).exchange(
        "POST / HTTP/1.1\r\n\(Self.host)Origin: https://a.example\r\nContent-Length: \(length)\r\n\r\n"
      ).field("access-control-allow-origin")
    }
    #expect(origin == "https://a.example")
  }

  @Test("100 is not sent if the content would be too large")
  func expectation() async throws {
    let request =
      "POST / HTTP/1.1\r\n\(Self.host)Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
    try await expect("bodyTooLarge", request)
  }

  @Test(
    "a Content-Length that is not a countable number is refused once, with our own response",
    arguments: [
      ("malformed", "-1"), ("malformed", "5, 5"), ("malformed", "x"), ("malformed", ""),
      ("bodyTooLarge", "9223372036854775808"), ("bodyTooLarge", "18446744073709551616"),
      ("bodyTooLarge", "99999999999999999999999"),
    ])
  func uncountable(refusal: String, length: String) async throws {
    let all = try await Served.with(handler: { _ in .text("handled") }) { port in
      // Other connections of the same threads, whose heads are incomplete.
      let others = try (0..<4).map { _ in try RawClient(port) }
      for other in others { try other.send("GET /other HTTP/1.1\r\n") }
      let client = try RawClient(port)
      #expect(try client.exchange(get).status == 200)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\n")
      try client.send("Content-Length: \(length)\r\n\r\nabc")
      let answer = try client.readToEnd()
      for other in others {
        try other.send("Host: x\r\n\r\n")
        #expect(try other.answer().body == "handled")
      }
      return answer
    }
    #expect(all.hasPrefix("HTTP/1.1 400 "))
    #expect(all.ranges(of: "HTTP/1.1").count == 1)
    let parts = all.components(separatedBy: "\r\n\r\n")
    #expect(parts.count == 2 && parts.last?.hasPrefix(refusal) == true, "\(all)")
    #expect(parts[0].lowercased().contains("content-type: application/problem+json"))
    #expect(parts[0].lowercased().contains("content-length: \(parts.last?.utf8.count ?? -1)"))
  }

  @Test("libmicrohttpd itself refuses requests that cannot be split into lines and parts")
  func hopeless() async throws {
    for request in [
      "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\r\nHost\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "GET /\(String(repeating: "a", count: 70_000)) HTTP/1.1\r\n",
    ] {
      let answer = try await Served.with(handler: { _ in .text("handled") }) { port in
        let client = try RawClient(port)
        _ = try client.sendSome(Array(request.utf8))
        return try client.readToEnd()
      }
      #expect(answer.isEmpty || answer.hasPrefix("HTTP/1.1 4") || answer.hasPrefix("HTTP/1.1 505"))
      #expect(!answer.contains("handled"))
    }
  }

  private func expect(_ refusal: String, _ request: String) async throws {
    let answer = try await Served.with(handler: { _ in .text("handled") }) { port in
      let client = try RawClient(port)
      let answer = try client.exchange(request)
      #expect(try client.isClosed())
      return answer
    }
    #expect(answer.status == 400)
    #expect(answer.field("content-type") == "application/problem+json")
    #expect(answer.body.hasPrefix(refusal), "\(answer.body)")
  }
}
