import Foundation
import HTTP
import HTTPTypes
import Testing

@Suite("Well-formed requests")
struct RequestTests {
  @Test(
    "the handler receives the target as sent",
    arguments: [
      ("GET /a/b HTTP/1.1", "GET /a/b -"),
      ("GET /a%00b%2fc%252e/../x HTTP/1.1", "GET /a%00b%2fc%252e/../x -"),
      ("GET /?a=%2f&b=+&&c=1&a=%00 HTTP/1.1", "GET / a=%2f&b=+&&c=1&a=%00"),
      ("GET /x? HTTP/1.1", "GET /x "),
      ("GET /x??a HTTP/1.1", "GET /x ?a"),
      ("GET /image?url=http://h/p?q=1 HTTP/1.1", "GET /image url=http://h/p?q=1"),
      ("GET http://other:80/p?q HTTP/1.1", "GET /p q"),
      ("GET HTTPS://other HTTP/1.1", "GET / -"),
      ("GET http://other?q HTTP/1.1", "GET / q"),
      ("OPTIONS * HTTP/1.1", "OPTIONS * -"),
      ("CONNECT h:443 HTTP/1.1", "CONNECT h:443 -"),
      ("TRACE / HTTP/1.1", "TRACE / -"),
      ("BREW-IT /pot HTTP/1.1", "BREW-IT /pot -"),
      ("DELETE /jobs/1 HTTP/1.1", "DELETE /jobs/1 -"),
    ])
  func target(line: String, told: String) async throws {
    // A 2xx response to CONNECT would open a tunnel. libmicrohttpd 1.0 does not send it.
    let handler: RequestHandler = { request in
      var response = await echo(request)
      if request.method == .connect { response.status = .methodNotAllowed }
      return response
    }
    let answer = try await Served.with(handler: handler) { port in
      try RawClient(port).exchange("\(line)\r\nHost: x\r\n\r\n")
    }
    #expect(answer.status == (line.hasPrefix("CONNECT") ? 405 : 200))
    #expect(answer.body == told)
  }

  @Test("fields arrive in order and trimmed, and an absolute target's authority becomes Host")
  func fields() async throws {
    let handler: RequestHandler = { request in
      .text(request.fields.map { "\($0.name.rawName)=\($0.value)" }.joined(separator: "|"))
    }
    let answer = try await Served.with(handler: handler) { port in
      try RawClient(port).exchange(
        "GET http://real:1/ HTTP/1.1\r\nhost: wrong\r\nX-A:  one \t\r\nX-Empty:\r\n"
          + "ACCEPT: a\r\naccept: b\r\n"
          + "X-Latin: \u{e9}\r\n\r\n")
    }
    #expect(answer.body == "Host=real:1|X-A=one|X-Empty=|Accept=a|Accept=b|X-Latin=\u{e9}")
  }

  @Test("a target may have as many arguments as fit", arguments: [4000])
  func arguments(count: Int) async throws {
    let query = String(repeating: "&", count: count)
    let answer = try await Served.with(handler: echo) { port in
      try RawClient(port).exchange("GET /?\(query) HTTP/1.1\r\nHost: x\r\n\r\n")
    }
    #expect(answer.body == "GET / \(query)")
  }

  @Test("a request may have the longest target and the most fields together")
  func limits() async throws {
    let target = "/" + String(repeating: "a", count: 8191)
    let fields = (0..<99).map { "F\($0): \(String(repeating: "v", count: 20))\r\n" }.joined()
    let answer = try await Served.with(handler: echo) { port in
      try RawClient(port).exchange("GET \(target) HTTP/1.1\r\nHost: x\r\n\(fields)\r\n")
    }
    #expect(answer.body == "GET \(target) -")
  }

  @Test("a request may arrive in pieces, after blank lines, and directly after another")
  func pieces() async throws {
    let bodies = try await Served.with(handler: echo) { port in
      let client = try RawClient(port)
      for byte in "\r\nGET /1?x=1 HTTP/1.1\r\nHost: x\r\n\r\n".utf8 {
        try client.send([byte])
        usleep(200)
      }
      var bodies = [try client.answer().body]
      try client.send(
        "GET /2?x=2 HTTP/1.1\r\nHost: x\r\n\r\n"
          + "POST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
          + "GET /4 HTTP/1.1\r\nHost: x\r\n\r\n")
      for _ in 2...4 { bodies.append(try client.answer().body) }
      return bodies
    }
    #expect(bodies == ["GET /1 x=1", "GET /2 x=2", "POST /3 - hi", "GET /4 -"])
  }

  @Test("HTTP/1.0 requires no Host and closes the connection unless asked to keep it")
  func old() async throws {
    try await Served.with(handler: echo) { port in
      let closing = try RawClient(port)
      #expect(try closing.exchange("GET /o HTTP/1.0\r\n\r\n").body == "GET /o -")
      #expect(try closing.isClosed())
      #expect(try RawClient(port).exchange("GET /o?a HTTP/1.0\r\n\r\n").body == "GET /o a")
      let keeping = try RawClient(port)
      for _ in 0..<2 {
        let answer = try keeping.exchange("GET /k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        #expect(answer.body == "GET /k -")
      }
    }
  }

  @Test(
    "the handler receives the client's address",
    arguments: [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
  func address(host: String, told: String) async throws {
    let handler: RequestHandler = { .text($0.remoteAddress) }
    for listening in [host, "::"] {
      let answer = try await Served.with({ $0.host = listening }, handler: handler) { port in
        try RawClient(port, host: host).exchange(get)
      }
      #expect(answer.body == told)
    }
  }
}
