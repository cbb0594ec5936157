import Foundation
import Glibc
import HTTP
import HTTPTypes
import TestSupport
import Testing

/// A file that is deleted with its owner.
final class OpenFile: Sendable {
  let descriptor: Int32
  let log: Log

  init(_ bytes: [UInt8], log: Log = Log()) {
    var name = Array("/tmp/http-tests-XXXXXX".utf8CString)
    let descriptor = mkstemp(&name)
    unlink(name)
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
      rest = rest.dropFirst(count)
    }
    (self.descriptor, self.log) = (descriptor, log)
  }

  deinit {
    close(descriptor)
    log.add("closed")
  }
}

@Suite("A response")
struct AnswerTests {
  @Test("a response from a file has the requested part, and the file is released")
  func file() async throws {
    let log = Log()
    let text = String(repeating: "0123456789", count: 300_000)
    let handler: RequestHandler = { _ in
      let file = OpenFile(Array(text.utf8), log: log)
      return Response(
        status: .ok,
        content: .file(descriptor: file.descriptor, offset: 5, count: 2_999_990, owner: file))
    }
    try await Served.with(handler: handler) { port in
      let client = try RawClient(port)
      for _ in 0..<2 {
        let answer = try client.exchange(get)
        #expect(answer.body == text.dropFirst(5).dropLast(5))
      }
      let head = try RawClient(port)
      try head.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(try head.answer(toHead: true).field("content-length") == "2999990")
    }
    #expect(log.entries.count == 3)
  }

  @Test("a client may disconnect in the middle of a large response")
  func left() async throws {
    let bytes = [UInt8](repeating: 7, count: 20_000_000)
    let file = OpenFile(bytes)
    let handler: RequestHandler = { request in
      let content: Response.Content =
        request.path == "/file"
        ? .file(descriptor: file.descriptor, offset: 0, count: bytes.count, owner: file)
        : .bytes(bytes)
      return Response(status: .ok, content: content)
    }
    let served = try Served(handler: handler)
    let port = served.port
    try await blocking {
      for path in ["/file", "/bytes"] {
        for _ in 0..<5 {
          let client = try RawClient(port)
          try client.send("GET \(path) HTTP/1.1\r\nHost: x\r\n\r\n")
          var some = [UInt8](repeating: 0, count: 1000)
          #expect(recv(client.descriptor, &some, some.count, 0) > 0)
        }
      }
      #expect(try RawClient(port).exchange(get).body.utf8.count == bytes.count)
    }
    #expect(await eventually { served.server.statistics.connections == 0 })
    await served.server.stop(within: .seconds(1))
  }

  @Test("HEAD, 204 and 304 have no content, and HEAD has the length")
  func bodiless() async throws {
    let handler: RequestHandler = { request in
      switch request.path {
      case "/204": Response(status: .noContent)
      case "/304": Response(status: .notModified, content: .bytes(Array("abcdef".utf8)))
      case "/omitted": Response(status: .notModified, content: .omitted(count: 5_000_000_000))
      case "/unknown": Response(status: .ok, content: .omitted(count: nil))
      default: .text("hello")
      }
    }
    try await Served.with(handler: handler) { port in
      let client = try RawClient(port)
      try client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
      let head = try client.answer(toHead: true)
      #expect(head.field("content-length") == "5")
      #expect(head.field("date") != nil)
      try client.send("GET /204 HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(try client.answer().field("content-length") == nil)
      try client.send("GET /304 HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(try client.answer(toHead: true).status == 304)
      try client.send("GET /omitted HTTP/1.1\r\nHost: x\r\n\r\n")
      #expect(try client.answer(toHead: true).field("content-length") == "5000000000")
      #expect(try client.exchange(get).body == "hello")
      try client.send("HEAD /unknown HTTP/1.1\r\nHost: x\r\n\r\n")
      let unknown = try client.readToEnd()
      #expect(unknown.hasSuffix("\r\n\r\n") && !unknown.lowercased().contains("content-length"))
    }
  }

  @Test("fields of a response can neither split it nor change its framing")
  func splitting() async throws {
    let handler: RequestHandler = { _ in
      var fields = HTTPFields()
      fields.append(HTTPField(name: .location, value: "/a\r\nSet-Cookie: b\r\n\r\nevil"))
      fields.append(HTTPField(name: .contentLength, value: "1"))
      fields.append(HTTPField(name: .transferEncoding, value: "chunked"))
      fields.append(HTTPField(name: .connection, value: "close"))
      fields.append(HTTPField(name: .setCookie, value: "one"))
      fields.append(HTTPField(name: .setCookie, value: "two"))
      return Response(status: .ok, fields: fields, content: .bytes(Array("body".utf8)))
    }
    try await Served.with(handler: handler) { port in
      let client = try RawClient(port)
      for _ in 0..<2 {
        let answer = try client.exchange(get)
        #expect(answer.body == "body")
        #expect(answer.field("transfer-encoding") == nil)
        #expect(
          answer.head.components(separatedBy: "\r\n").filter { $0.hasPrefix("Set-Cookie") }.count
            == 2)
      }
    }
  }

  @Test("a response with 4 KiB of fields is possible after the largest request")
  func largeHead() async throws {
    let handler: RequestHandler = { _ in
      var fields = HTTPFields()
      for index in 0..<40 {
        fields[HTTPField.Name("X-\(index)")!] = String(repeating: "v", count: 90)
      }
      return Response(status: .ok, fields: fields)
    }
    let answer = try await Served.with(handler: handler) { port in
      let fields = (0..<99).map { "F\($0): \(String(repeating: "v", count: 115))\r\n" }.joined()
      return try RawClient(port).exchange("GET / HTTP/1.1\r\nHost: x\r\n\(fields)\r\n")
    }
    #expect(answer.field("x-39") != nil)
  }
}

@Suite("The server")
struct ServerTests {
  @Test("the server accepts connections up to the limit, and more when a slot is free")
  func maximum() async throws {
    let handler: RequestHandler = { request in
      if request.path == "/wait" { try? await Task.sleep(for: .seconds(600)) }
      return .text("ok")
    }
    try await Served.with({ $0.maxConnections = 5 }, handler: handler) { port, server in
      var clients = try (0..<5).map { _ in try RawClient(port) }
      for client in clients {
        #expect(try client.exchange(get).status == 200)
        try client.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
      }
      // Once all connections wait for a response, none may be evicted.
      try server.isAnswering(5)
      let next = try RawClient(port, timeout: 1)
      try next.send(get)
      #expect(throws: RawClient.Failure.self) { try next.answer() }
      clients.removeLast()
      next.receiveTimeout()
      #expect(try next.answer().status == 200)
    }
  }

  @Test("the server reports why it cannot start")
  func errors() async throws {
    let served = try Served(handler: echo)
    var configuration = HTTPServer.Configuration()
    configuration.port = served.port
    let twice = HTTPServer(configuration, handler: echo, refusal: { _, _ in .text("") })
    #expect(
      throws: ServerError.addressUnavailable(
        host: "127.0.0.1", port: served.port, errno: EADDRINUSE)
    ) { try twice.start() }
    configuration.host = "not an address"
    let lost = HTTPServer(configuration, handler: echo, refusal: { _, _ in .text("") })
    #expect(throws: ServerError.unknownHost("not an address")) { try lost.start() }
    configuration.host = "127.0.0.1"
    configuration.port = 0
    configuration.tls = (certificate: "no PEM", key: "none")
    let bare = HTTPServer(configuration, handler: echo, refusal: { _, _ in .text("") })
    #expect(throws: ServerError.self) { try bare.start() }
    await served.server.stop(within: .zero)
  }

  @Test("the server counts connections and requests")
  func statistics() async throws {
    let served = try Served(handler: echo)
    let port = served.port
    let client = try await blocking {
      let client = try RawClient(port)
      for _ in 0..<3 { _ = try client.exchange(get) }
      return client
    }
    #expect(await eventually { served.server.statistics.active == 0 })
    #expect(served.server.statistics.connections == 1)
    #expect(served.server.statistics.requests == 3)
    _ = client.descriptor
    await served.server.stop(within: .zero)
  }

  @Test("the server works over TLS, with waiting handlers and files", arguments: [1, 2])
  func tls(threads: Int) async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let (key, certificate) = (folder.appending(path: "key.pem"), folder.appending(path: "cert.pem"))
    try await ChildProcess.run([
      "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
      "-keyout", key.path, "-out", certificate.path, "-days", "2", "-subj", "/CN=localhost",
    ])
    let tls = (
      try String(contentsOf: certificate, encoding: .utf8),
      try String(contentsOf: key, encoding: .utf8)
    )
    let file = OpenFile(Array(repeating: 65, count: 200_000))
    let served = try Served {
      $0.tls = tls
      $0.threads = threads
    } handler: { request in
      try? await Task.sleep(for: .milliseconds(20))
      if request.path == "/file" {
        return Response(
          status: .ok,
          content: .file(descriptor: file.descriptor, offset: 0, count: 200_000, owner: file))
      }
      return await echo(request)
    }
    let base = "https://127.0.0.1:\(served.port)"
    let posted = try await ChildProcess.run(["curl", "-sk", "\(base)/a?b", "-d", "text"])
    #expect(posted.text == "POST /a b text")
    #expect(try await ChildProcess.run(["curl", "-sk", "\(base)/file"]).output.count == 200_000)
    await served.server.stop(within: .seconds(1))
  }
}
