import Fetch
import Glibc
import Jobs
import Synchronization
import TestSupport
import Testing

/// Bytes that an origin sends unasked on a kept connection must never be read as the response to another
/// request.
@Suite("An origin that sends too much")
struct SmugglingTests {
  private let origin: ScriptedOrigin
  private let elsewhere: ScriptedOrigin
  private let fetcher: CurlFetcher
  private static let smuggled =
    ScriptedReply.head(200, [("Content-Length", "4")]) + Array("evil".utf8)

  init() throws {
    origin = try ScriptedOrigin()
    elsewhere = try ScriptedOrigin()
    elsewhere.on("/to", .ok(bytes(3)))
    fetcher = try FetchTests.fetcher()
    origin.on("/next", .ok(bytes(20)))
  }

  /// Fetches the next image, which must be the right one whatever was sent before.
  private func expectNext(_ comment: Comment? = nil) async throws {
    let response = try await fetcher.fetch(request(origin.url("/next")))
    #expect(try await readAll(response.body) == bytes(20), comment)
  }

  /// Complete responses of every kind. Redirects lead to another origin.
  private enum Kind: String, CaseIterable, Sendable {
    case length, chunks, noContent, emptyBody, notModified, notFound, redirect, emptyRedirect

    func bytes(to target: String) -> [UInt8] {
      switch self {
      case .length: Self.head(200, length: 10) + FetchTests.bytes(10)
      case .chunks:
        ScriptedReply.head(200, [("Transfer-Encoding", "chunked")])
          + ScriptedReply.chunk(FetchTests.bytes(10)) + ScriptedReply.chunk([])
      case .noContent: Self.head(204)
      case .emptyBody: Self.head(200, length: 0)
      case .notModified: Self.head(304)
      case .notFound: Self.head(404, length: 2) + FetchTests.bytes(2)
      case .redirect: Self.head(302, length: 2, to: target) + FetchTests.bytes(2)
      case .emptyRedirect: Self.head(301, length: 0, to: target)
      }
    }

    private static func head(_ status: Int, length: Int? = nil, to target: String? = nil) -> [UInt8]
    {
      ScriptedReply.head(
        status,
        (length.map { [("Content-Length", "\($0)")] } ?? [])
          + (target.map { [("Location", $0)] } ?? []))
    }
  }

  private static let extras: [[UInt8]] = [
    smuggled, smuggled + smuggled, [0x0A],
    // More than one read, followed by a complete response.
    [UInt8](repeating: 0x61, count: 100_000) + smuggled,
  ]
  private static let condition = HeaderField(name: "If-None-Match", value: "\"a\"")

  @Test("bytes directly after a response never become the next response", arguments: Kind.allCases)
  private func atOnce(kind: Kind) async throws {
    for extra in Self.extras {
      origin.on("/a", ScriptedReply(.send(kind.bytes(to: elsewhere.url("/to")) + extra)))
      for _ in 0..<3 {
        _ = await failure(of: fetcher, request(origin.url("/a"), conditions: [Self.condition]))
        try await expectNext("\(extra.count) bytes")
      }
    }
    #expect(origin.requests(to: "/a").count == 3 * Self.extras.count)
  }

  @Test("bytes on an idle connection never become the next response", arguments: Kind.allCases)
  private func later(kind: Kind) async throws {
    for extra in Self.extras {
      let gate = Gate()
      let whole = kind.bytes(to: elsewhere.url("/to"))
      origin.on("/a", ScriptedReply(.send(whole), .hold(gate), .send(extra)))
      let fetcher = try FetchTests.fetcher()
      _ = await failure(of: fetcher, request(origin.url("/a"), conditions: [Self.condition]))
      let used = try #require(origin.requests.last?.connection)
      gate.open()
      // On loopback, bytes that the kernel accepted have arrived.
      #expect(
        await poll {
          origin.sentBytes(on: used) >= whole.count + extra.count || origin.closed(used) != nil
        })
      let response = try await fetcher.fetch(request(origin.url("/next")))
      #expect(try await readAll(response.body) == bytes(20))
      #expect(origin.requests.last?.connection != used)
    }
  }

  @Test("a silent connection is kept", arguments: Kind.allCases)
  private func clean(kind: Kind) async throws {
    origin.on("/a", ScriptedReply(.send(kind.bytes(to: elsewhere.url("/to")))))
    for _ in 0..<3 {
      _ = await failure(of: fetcher, request(origin.url("/a"), conditions: [Self.condition]))
      try await expectNext()
    }
    #expect(origin.acceptedConnections == 1)
  }

  @Test("unasked bytes on one connection do not affect the others")
  func others() async throws {
    let other = try ScriptedOrigin()
    other.on("/next", .ok(bytes(20)))
    origin.on(
      "/a", ScriptedReply(.send(Kind.length.bytes(to: "")), .pause(.milliseconds(20)), .close))
    for _ in 0..<20 {
      async let a = failure(of: fetcher, request(origin.url("/a")))
      async let b = failure(of: fetcher, request(other.url("/next")))
      let errors = (await a, await b)
      #expect(errors.0 == nil)
      #expect(errors.1 == nil)
    }
  }

  @Test("many fetches at once receive their own bodies, although each origin adds a response")
  func manyAtOnce() async throws {
    for path in 0..<8 {
      let body = bytes(100 + path)
      let whole = ScriptedReply.head(200, [("Content-Length", "\(body.count)")]) + body
      origin.on("/\(path)", ScriptedReply(.send(whole), .send(Self.smuggled)))
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<400 {
        group.addTask { [fetcher, origin] in
          let path = number % 8
          let response = try await fetcher.fetch(request(origin.url("/\(path)")))
          // Bytes that arrive after a request was sent cannot be told apart from its response.
          let body = try await readAll(response.body)
          #expect(body == bytes(100 + path) || body == Array("evil".utf8))
        }
      }
      try await group.waitForAll()
    }
  }

  @Test("credentials that may authenticate a connection get a connection of their own")
  func connectionsCredentials() async throws {
    func fetch(_ credentials: String?) async throws -> Int {
      let fields = credentials.map { [HeaderField(name: "authorization", value: $0)] } ?? []
      #expect(await failure(of: fetcher, request(origin.url("/next"), headers: fields)) == nil)
      return try #require(origin.requests.last?.connection)
    }
    let first = try await fetch(nil)
    for credentials in ["Negotiate YII", "NTLM TlRM", "negotiate", "Unheard-Of x"] {
      let own = try await fetch(credentials)
      #expect(own != first)
      #expect(try await fetch(nil) == first)
    }
    for credentials in ["Bearer x", "basic eDp5"] {
      #expect(try await fetch(credentials) == first)
    }
  }

  @Test("events of a closed connection never affect another one, even while its socket has a copy")
  func copiedSocket() async throws {
    let copies = SocketCopies()
    origin.on("/a") { [port = origin.port] _ in
      // A child process also has copies of all sockets until it runs its program.
      copies.add(to: port)
      let head = ScriptedReply.head(200, [("Connection", "close"), ("Content-Length", "10")])
      return ScriptedReply(.send(head + bytes(10)), .close)
    }
    for _ in 0..<10 {
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
      try await expectNext()
      copies.close()
    }
  }

  @Test("a connection is closed after a response with a length and a transfer coding")
  func doubtful() async throws {
    let fields = [("Content-Length", "4"), ("Transfer-Encoding", "chunked")]
    let body = ScriptedReply.chunk(bytes(10)) + ScriptedReply.chunk([])
    origin.on("/a", ScriptedReply(.send(ScriptedReply.head(200, fields) + body)))
    #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
    try await expectNext()
    #expect(origin.requests.last?.connection == 2)
  }
}

/// Copies of this process's sockets.
private final class SocketCopies: Sendable {
  private let descriptors = Mutex<[Int32]>([])

  deinit { close() }

  /// Copies the sockets that are connected to a port.
  func add(to port: Int) {
    for socket in 0..<Int32(4_096) where Self.peerPort(of: socket) == port {
      let copy = fcntl(socket, F_DUPFD_CLOEXEC, 0)
      if copy >= 0 { descriptors.withLock { $0.append(copy) } }
    }
  }

  func close() {
    descriptors.withLock { descriptors in
      for descriptor in descriptors { _ = Glibc.close(descriptor) }
      descriptors = []
    }
  }

  /// Returns the port that an IPv4 socket is connected to; nil for other descriptors.
  private static func peerPort(of descriptor: Int32) -> Int? {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let result = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        getpeername(descriptor, $0, &length)
      }
    }
    guard result == 0, address.sin_family == sa_family_t(AF_INET) else { return nil }
    return Int(UInt16(bigEndian: address.sin_port))
  }
}
