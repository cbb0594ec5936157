import Foundation
import HTTP
import HTTPTypes
import Testing

@Suite("A request's content")
struct BodyTests {
  /// Counts and sums the received bytes, and returns the result.
  static let counting: RequestHandler = { request in
    var (total, sum) = (0, 0)
    do {
      while let bytes = try await request.body.next() {
        total += bytes.count
        sum = bytes.reduce(sum) { ($0 &* 31 &+ Int($1)) % 1_000_007 }
      }
    } catch {
      return .text("\(error) after \(total)", .contentTooLarge)
    }
    return .text("\(request.body.declaredLength ?? -1) \(total) \(sum)")
  }

  /// Only counts, because summing long content byte by byte is slow without optimization.
  static let weighing: RequestHandler = { request in
    var total = 0
    while let bytes = try? await request.body.next() { total += bytes.count }
    return .text("\(total)")
  }

  static func pattern(_ count: Int) -> ([UInt8], sum: Int) {
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 / 251) }
    return (bytes, bytes.reduce(0) { ($0 &* 31 &+ Int($1)) % 1_000_007 })
  }

  static func chunked(_ bytes: [UInt8], by size: Int) -> [UInt8] {
    var all: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: size) {
      let piece = bytes[start..<min(start + size, bytes.count)]
      all += Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8)
    }
    return all + Array("0\r\n\r\n".utf8)
  }

  @Test(
    "content of any length arrives completely", arguments: [1, 1000, 16384, 16385, 65537, 300_000])
  func whole(count: Int) async throws {
    let (bytes, sum) = Self.pattern(count)
    let answers = try await Served.with(handler: Self.counting) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(count)\r\n\r\n")
      try client.send(bytes)
      let first = try client.answer().body
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
      try client.send(Self.chunked(bytes, by: 7777))
      return [first, try client.answer().body]
    }
    #expect(answers == ["\(count) \(count) \(sum)", "-1 \(count) \(sum)"])
  }

  @Test("a chunked request closes its connection, because proxies may see other chunk ends")
  func chunksLast() async throws {
    let answers = try await Served.with(handler: Self.counting) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
      // A server that ignores chunk extensions reads content of 0x45 bytes here.
      try client.send("2;\nxx\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n")
      return try client.readToEnd()
    }
    #expect(answers.ranges(of: "HTTP/1.1 ").count == 1, "\(answers)")
    #expect(answers.contains("Connection: close"))
  }

  @Test("chunked content is cut at the limit, and the handler's response is sent")
  func tooLarge() async throws {
    let (bytes, _) = Self.pattern(300_000)
    let answer = try await Served.with({ $0.maxBody = 100_000 }, handler: Self.counting) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
      try client.send(Self.chunked(bytes, by: 10_000))
      return try client.answer()
    }
    #expect(answer.status == 413)
    #expect(answer.body.hasPrefix("tooLarge(limit: 100000)"))
  }

  @Test("endless chunked content is cut")
  func endless() async throws {
    let sent = try await Served.with({ $0.maxBody = 100_000 }, handler: Self.weighing) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
      let chunk = Array("10000\r\n".utf8) + [UInt8](repeating: 1, count: 65536) + Array("\r\n".utf8)
      var sent = 0
      while sent < 100_000_000 {
        let count = try client.sendSome(chunk)
        sent += count
        if count < chunk.count { break }
      }
      return sent
    }
    #expect(sent < 50_000_000)
  }

  @Test("100 is sent to a client that expects it, unless the handler has responded")
  func expectation() async throws {
    let handler: RequestHandler = { request in
      if request.path == "/no" { return .text("no", .unauthorized) }
      return await Self.counting(request)
    }
    try await Served.with(handler: handler) { port in
      for count in [5, 100_000] {
        let client = try RawClient(port)
        let (bytes, sum) = Self.pattern(count)
        try client.send(
          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(count)\r\nExpect: 100-continue\r\n\r\n")
        #expect(try client.answer().status == 100)
        try client.send(bytes)
        #expect(try client.answer().body == "\(count) \(count) \(sum)")
      }
      let refused = try RawClient(port)
      try refused.send(
        "POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n")
      #expect(try refused.answer().status == 401)
      #expect(try refused.isClosed())
    }
  }

  @Test("content that the handler does not read stays with the client, within limits")
  func backPressure() async throws {
    let gate = Gate()
    let handler: RequestHandler = { request in
      await gate.wait()
      return await Self.weighing(request)
    }
    let bytes = [UInt8](repeating: 7, count: 30_000_000)
    let answer = try await Served.with(handler: handler) { port in
      let client = try RawClient(port)
      client.sendTimeout(milliseconds: 300)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(bytes.count)\r\n\r\n")
      // Only as many bytes can be sent as fit into the kernel's buffers on both sides.
      let first = try client.sendSome(bytes)
      #expect(first < 20_000_000)
      gate.open()
      client.sendTimeout()
      try client.send(Array(bytes[first...]))
      return try client.answer()
    }
    #expect(answer.body == "\(bytes.count)")
  }

  @Test("the time while the server does not read is not counted against the client")
  func heldBackIsNotSlow() async throws {
    let gate = Gate()
    let handler: RequestHandler = { request in
      await gate.wait()
      return await Self.weighing(request)
    }
    // More than the server reads ahead of the handler.
    let bytes = [UInt8](repeating: 7, count: 1_000_000)
    let configure = { (c: inout HTTPServer.Configuration) in c.requestTimeout = .seconds(1) }
    let answer = try await Served.with(configure, handler: handler) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(bytes.count)\r\n\r\n")
      Thread.detachNewThread {
        usleep(2_000_000)
        gate.open()
      }
      try client.send(bytes)
      return try client.answer()
    }
    #expect(answer.body == "\(bytes.count)")
  }

  @Test(
    "content that the handler does not read does not affect the response",
    arguments: [10, 60_000, 2_000_000])
  func unread(count: Int) async throws {
    try await Served.with(handler: { _ in .text("enough") }) { port in
      for _ in 0..<5 {
        let client = try RawClient(port)
        try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(count)\r\n\r\n")
        _ = try client.sendSome([UInt8](repeating: 0, count: count))
        #expect(try client.answer().body == "enough")
      }
    }
  }

  @Test("content that the handler stops reading is dropped, and the connection is kept")
  func halfRead() async throws {
    let handler: RequestHandler = { request in
      let first = try? await request.body.next()
      return .text(first == nil ? "none" : "some")
    }
    let bodies = try await Served.with(handler: handler) { port in
      let client = try RawClient(port)
      try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
      try client.send([UInt8](repeating: 0, count: 1_000_000))
      return [try client.answer().body, try client.exchange(get).body]
    }
    #expect(bodies == ["some", "none"])
  }

  @Test("content that ends early is an error for its reader")
  func disconnected() async throws {
    let log = Log()
    let handler: RequestHandler = { request in
      do throws(BodyError) {
        while try await request.body.next() != nil {}
      } catch {
        log.add("\(error)")
      }
      return .text("")
    }
    let served = try Served(handler: handler)
    let port = served.port
    try await blocking {
      for _ in 0..<10 {
        let client = try RawClient(port)
        try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
      }
    }
    #expect(await eventually { log.entries.count == 10 })
    #expect(Set(log.entries) == ["disconnected"])
    await served.server.stop(within: .zero)
  }
}
