import Fetch
import Foundation
import Jobs
import TestSupport
import Testing

@Suite("A libcurl handle that is used again")
struct HandleTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher { $0.stallTimeout = .seconds(2) }
    origin.on("/a", .ok(bytes(10)))
  }

  private static let secrets = [
    HeaderField(name: "Authorization", value: "Bearer x"),
    HeaderField(name: "Cookie", value: "a=b"),
    HeaderField(name: "Accept", value: "image/webp"),
    HeaderField(name: "User-Agent", value: "other"),
    HeaderField(name: "X-Own", value: "1"),
  ]

  @Test("a reused handle sends nothing of its earlier request, however that ended")
  func fields() async throws {
    let other = try ScriptedOrigin()
    other.on("/b", .ok(bytes(10)))
    origin.on("/whole", .ok(bytes(500_000)))
    origin.on("/to", .redirect(to: other.url("/b")))
    origin.on("/missing", .status(404))
    origin.on("/cut", .truncated(bytes(1_000), after: 400))
    origin.on("/stalled", .stalled(bytes(1_000), after: 400))
    origin.on("/garbage", .raw("no HTTP"))
    let range = HeaderField(name: "Range", value: "bytes=5-")
    for path in ["/whole", "/to", "/missing", "/cut", "/stalled", "/garbage"] {
      _ = await failure(
        of: fetcher,
        request(origin.url(path), headers: Self.secrets, conditions: [range]))
      for next in [origin, other] {
        let url = next.url(next.port == origin.port ? "/a" : "/b")
        #expect(await failure(of: fetcher, request(url)) == nil, "\(path)")
        let sent = try #require(next.requests.last)
        #expect(
          Set(sent.headers.map(\.name)) == ["Host", "Accept", "Accept-Encoding", "User-Agent"])
        #expect(sent.header("Host") == "127.0.0.1:\(next.port)")
        #expect(sent.header("User-Agent") == "imagefetch")
        #expect(sent.header("Accept")?.hasPrefix("image/*") == true)
      }
    }
  }

  @Test("a reused handle keeps its connection even if the last transfer closed its own")
  func reuse() async throws {
    origin.on("/held", .stalled(bytes(1_000), after: 400))
    var held: FetchedResponse? = try await fetcher.fetch(request(origin.url("/held")))
    #expect(try await held?.body.next() != nil)
    held = nil
    #expect(await origin.waitForClose(of: 1) != nil)
    for _ in 0..<3 { #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil) }
    #expect(origin.acceptedConnections == 2)
  }

  @Test("a reused handle reports its own failure, not an earlier one")
  func words() async throws {
    origin.on("/garbage", .raw("no HTTP"))
    let garbage = request(origin.url("/garbage"))
    let told = await failure(of: fetcher, garbage)
    guard case .noResponse(_, let first) = told else {
      Issue.record("expected an invalid response: \(String(describing: told))")
      return
    }
    let gone = try ScriptedOrigin()
    let url = gone.url("/")
    gone.stop()
    guard case .connectFailure(_, let second) = await failure(of: fetcher, request(url)) else {
      Issue.record("expected a connection failure")
      return
    }
    #expect(second.contains("\(gone.port)") && !second.contains(first))
  }

  @Test("a reused handle begins a new TLS session, so that origins cannot link two connections")
  func sessions() async throws {
    let certificates = try TestCertificates()
    let server = try await PythonServer(sessionServer, arguments: [certificates.certificate])
    let fetcher = try FetchTests.fetcher { $0.certificateAuthorities = certificates.authority }
    for _ in 0..<3 {
      let url = "https://127.0.0.1:\(server.port)/a"
      #expect(await failure(of: fetcher, request(url)) == nil)
    }
    #expect(await poll { server.printed.count == 3 })
    #expect(server.printed == ["False", "False", "False"])
  }

  @Test("more transfers than pooled handles all succeed, twice")
  func many() async throws {
    let fetcher = try FetchTests.fetcher()
    origin.on("/large", .ok(bytes(100_000)))
    for _ in 0..<2 {
      let errors = await withTaskGroup(of: FetchError?.self) { group in
        for _ in 0..<150 {
          group.addTask { await failure(of: fetcher, request(origin.url("/large"))) }
        }
        return await group.reduce(into: [FetchError]()) { all, error in
          if let error { all.append(error) }
        }
      }
      #expect(errors == [])
    }
  }
}

/// Answers one request per connection, and reports whether its TLS session was resumed.
private let sessionServer = """
  import socket, ssl, sys
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.load_cert_chain(sys.argv[1])
  listener = socket.create_server(("127.0.0.1", 0))
  print(listener.getsockname()[1])
  while True:
      connection, _ = listener.accept()
      try:
          with context.wrap_socket(connection, server_side=True) as session:
              session.recv(65536)
              print(session.session_reused)
              session.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
      except OSError: pass
  """
