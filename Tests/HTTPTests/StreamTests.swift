import Foundation
import Glibc
import HTTP
import HTTPTypes
import Synchronization
import Testing

/// A stream that sends the given pieces.
private final class TestStream: ContentStream {
  private struct State {
    var pieces: [StreamPiece] = []
    var wake: (@Sendable () -> Void)?
    var given = 0
  }
  private let state = Mutex(State())
  private let log: Log
  /// Sent again and again when there is no other piece.
  private let endless: [UInt8]?
  let keepAlive: KeepAlive?
  let mayEndAnywhere: Bool

  init(
    _ pieces: [StreamPiece] = [], log: Log = Log(), keepAlive: KeepAlive? = nil,
    endsAnywhere: Bool = true, endless: [UInt8]? = nil
  ) {
    (self.log, self.keepAlive, self.endless) = (log, keepAlive, endless)
    self.mayEndAnywhere = endsAnywhere
    state.withLock { $0.pieces = pieces }
  }

  deinit { log.add("gone") }

  func attach(_ wake: @escaping @Sendable () -> Void) {
    state.withLock { $0.wake = wake }
    log.add("attached")
  }

  func next() -> StreamPiece {
    state.withLock { state in
      let piece =
        state.pieces.isEmpty
        ? endless.map(StreamPiece.bytes) ?? .nothingYet : state.pieces.removeFirst()
      if case .bytes(let bytes) = piece { state.given += bytes.count }
      return piece
    }
  }

  func send(_ piece: StreamPiece) {
    let wake = state.withLock { state in
      state.pieces.append(piece)
      return state.wake
    }
    wake?()
  }

  func send(_ text: String) { send(.bytes(Array(text.utf8))) }

  var given: Int { state.withLock { $0.given } }
}

/// Counts streams that still exist. It holds weak references, so that only the server retains them.
private final class Streams: Sendable {
  private struct Weak { weak var stream: TestStream? }
  private let all = Mutex<[Weak]>([])

  func add(_ stream: TestStream) -> TestStream {
    all.withLock { $0.append(Weak(stream: stream)) }
    return stream
  }
  var first: TestStream? { all.withLock { $0.first?.stream } }
  var living: [TestStream] { all.withLock { $0.compactMap(\.stream) } }
}

extension Response {
  fileprivate static func stream(_ stream: TestStream) -> Response {
    Response(status: .ok, content: .stream(stream))
  }
}

extension Log {
  fileprivate func count(_ entry: String) -> Int { entries.count { $0 == entry } }
}

@Suite("A streamed response")
struct StreamTests {
  @Test("pieces are sent as they are produced, and the connection can be used again")
  func pieces() async throws {
    let streams = Streams()
    try await Served.with(handler: { request in
      request.path == "/" ? .stream(streams.add(TestStream([.bytes(Array("a".utf8))]))) : .text("b")
    }) { port in
      let client = try RawClient(port)
      try client.send(get)
      let head = try client.read(upTo: "\r\n\r\n1\r\na\r\n")
      #expect(head.lowercased().contains("transfer-encoding: chunked"))
      for text in ["one", "two", String(repeating: "x", count: 100_000)] {
        streams.first?.send(text)
        try client.read(upTo: "\(text.suffix(3))\r\n")
      }
      streams.first?.send(.bytes([]))
      streams.first?.send(.end)
      try client.read(upTo: "0\r\n\r\n")
      #expect(try client.exchange("GET /b HTTP/1.1\r\nHost: x\r\n\r\n").body == "b")
    }
    #expect(streams.living.isEmpty)
  }

  @Test("no piece is lost, whenever pieces are produced", arguments: 0..<4)
  func racing(round: Int) async throws {
    let streams = Streams()
    try await Served.with(handler: { _ in .stream(streams.add(TestStream())) }) { port in
      let clients = try (0..<4).map { _ in try RawClient(port) }
      for client in clients {
        try client.send(get)
        try client.read(upTo: "\r\n\r\n")
      }
      let living = streams.living
      #expect(living.count == 4)
      for _ in 0..<2 {
        Thread.detachNewThread {
          for number in 0..<1000 {
            for stream in living { stream.send(".") }
            if number.isMultiple(of: 7) { usleep(UInt32.random(in: 0...200)) }
          }
          for stream in living { stream.send("!") }
        }
      }
      for client in clients {
        let text = try client.read(upTo: "!") + client.read(upTo: "!")
        #expect(text.count { $0 == "." } == 2000)
      }
    }
  }

  @Test("a stream is released when its client disconnects", arguments: ["close", "reset", "half"])
  func leaves(how: String) async throws {
    let log = Log()
    let served = try Served(handler: { _ in .stream(TestStream(log: log)) })
    let port = served.port
    let clients = try await blocking {
      try (0..<100).map { _ in
        let client = try RawClient(port)
        try client.send(get)
        try client.read(upTo: "\r\n\r\n")
        return client
      }
    }
    #expect(await eventually { log.count("attached") == 100 })
    #expect(log.count("gone") == 0)
    for client in clients {
      var linger = Glibc.linger(l_onoff: how == "reset" ? 1 : 0, l_linger: 0)
      setsockopt(
        client.descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size))
      shutdown(client.descriptor, Int32(how == "half" ? SHUT_WR : SHUT_RDWR))
    }
    #expect(await eventually { log.count("gone") == 100 })
    #expect(await eventually { served.server.statistics.connections == 0 })
    #expect(served.server.statistics.active == 0)
    await served.server.stop(within: .zero)
  }

  @Test("streams end normally when the server stops, a hundred as quickly as one")
  func stops() async throws {
    let log = Log()
    let served = try Served(handler: { _ in .stream(TestStream(log: log)) })
    let port = served.port
    let clients = try await blocking {
      try (0..<200).map { _ in
        let client = try RawClient(port)
        try client.send(get)
        try client.read(upTo: "\r\n\r\n")
        return client
      }
    }
    let begin = ContinuousClock.now
    await served.server.stop(within: .seconds(300))
    #expect(begin.duration(to: .now) < .seconds(200))
    let rests = try await blocking { try clients.map { try $0.readToEnd() } }
    #expect(rests == Array(repeating: "0\r\n\r\n", count: 200))
    #expect(log.count("gone") == 200)
    #expect(served.server.statistics.connections == 0)
  }

  @Test("a failed stream is aborted after its last piece, without a last chunk")
  func fails() async throws {
    try await Served.with(handler: { _ in
      .stream(TestStream([.bytes(Array("abc".utf8)), .failed]))
    }) { port in
      let client = try RawClient(port)
      try client.send(get)
      let answer = try client.readToEnd()
      #expect(answer.hasSuffix("\r\n\r\n3\r\nabc\r\n"), "\(answer)")
    }
  }

  @Test("a stream that must be complete is aborted when the server stops before its end")
  func stopsBeforeItsEnd() async throws {
    let log = Log()
    let served = try Served(handler: { _ in .stream(TestStream(log: log, endsAnywhere: false)) })
    let port = served.port
    let client = try await blocking {
      let client = try RawClient(port)
      try client.send(get)
      try client.read(upTo: "\r\n\r\n")
      return client
    }
    await served.server.stop(within: .seconds(20))
    let rest = try await blocking { try client.readToEnd() }
    #expect(rest.isEmpty, "\(rest)")
    #expect(log.count("gone") == 1)
  }

  @Test("a stream that begins while the server stops ends at once, and nothing aborts")
  func stopsUnderLoad() async throws {
    for _ in 0..<5 {
      let log = Log()
      let served = try Served(handler: { _ in
        .stream(TestStream([.bytes([46])], log: log))
      })
      let port = served.port
      let clients = (0..<8).map { _ in
        Task {
          try await blocking {
            while let client = try? RawClient(port), (try? client.send(get)) != nil,
              (try? client.read(upTo: "\r\n\r\n1\r\n.\r\n")) != nil
            {}
          }
        }
      }
      #expect(await eventually { log.count("attached") > 20 })
      await served.server.stop(within: .seconds(20))
      for client in clients { try await client.value }
      #expect(log.count("attached") == log.count("gone"))
    }
  }

  @Test("a stream produces nothing for a client that does not read, and is closed after a while")
  func neverRead() async throws {
    let log = Log()
    let streams = Streams()
    let served = try Served(
      { $0.idleTimeout = .seconds(1) },
      handler: { _ in
        .stream(streams.add(TestStream(log: log, endless: Array(repeating: 46, count: 1000))))
      })
    let client = try await blocking {
      let client = try RawClient(served.port)
      var size: Int32 = 8192
      setsockopt(
        client.descriptor, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
      try client.send(get)
      return client
    }
    #expect(await eventually { log.count("attached") == 1 })
    let given = Mutex(0)
    #expect(
      await eventually {
        if let stream = streams.first { given.withLock { $0 = stream.given } }
        return log.count("gone") == 1
      })
    // About as much as the client's receive buffer holds.
    #expect(given.withLock { $0 } < 4 << 20)
    #expect(await eventually { served.server.statistics.connections == 0 })
    await served.server.stop(within: .zero)
    withExtendedLifetime(client) {}
  }

  @Test("a stream may be silent for longer than the timeouts, and keep-alive bytes are sent")
  func silent() async throws {
    let streams = Streams()
    let configure = { @Sendable (configuration: inout HTTPServer.Configuration) in
      configuration.requestTimeout = .milliseconds(400)
      configuration.idleTimeout = .seconds(1)
    }
    let pulse = KeepAlive(bytes: Array("pulse".utf8), interval: .milliseconds(300))
    try await Served.with(
      configure,
      handler: { request in
        .stream(streams.add(TestStream(keepAlive: request.path == "/pulse" ? pulse : nil)))
      }
    ) { port in
      let silent = try RawClient(port)
      try silent.send(get)
      try silent.read(upTo: "\r\n\r\n")
      let kept = try RawClient(port)
      try kept.send("GET /pulse HTTP/1.1\r\nHost: x\r\n\r\n")
      let begin = ContinuousClock.now
      for _ in 0..<8 { try kept.read(upTo: "pulse") }
      #expect(begin.duration(to: .now) > .milliseconds(8 * 250))
      streams.first?.send("still here")
      try silent.read(upTo: "still here")
    }
  }

  @Test("HTTP/1.0 receives a stream without chunks, and HEAD without content")
  func otherKinds() async throws {
    try await Served.with(handler: { _ in
      .stream(TestStream([.bytes(Array("abc".utf8)), .bytes(Array("def".utf8)), .end]))
    }) { port in
      let old = try RawClient(port)
      try old.send("GET / HTTP/1.0\r\nHost: x\r\n\r\n")
      #expect(try old.readToEnd().hasSuffix("\r\n\r\nabcdef"))
      // No chunk may follow the header section, because the client would read it as the next response.
      let head = try RawClient(port)
      try head.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
      let answer = try head.readToEnd().lowercased()
      #expect(answer.hasPrefix("http/1.1 200 ok\r\n"))
      #expect(answer.components(separatedBy: "\r\n\r\n").dropFirst() == [""])
      #expect(!answer.contains("transfer-encoding") && !answer.contains("content-length"))
    }
  }
}
