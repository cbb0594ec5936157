import Fetch
import Jobs
import TestSupport
import Testing

@Suite("Cancelling a fetch")
struct CancellationTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher()
    origin.on("/silent", .silent)
    origin.on("/stalled", .stalled(bytes(1_000), after: 100))
    origin.on("/a", .ok(bytes(50_000)))
  }

  /// The longest median time between a cancel and the close of the connection as the origin sees it.
  /// The contract allows 100 ms. Busy machines may need longer, but much less than any timeout.
  private let atOnce = Duration.seconds(10)

  private func medianDelay(
    _ start: (Int) async throws -> ContinuousClock.Instant
  ) async throws -> Duration {
    var delays: [Duration] = []
    for connection in 1...5 {
      let cancelled = try await start(connection)
      let closed = try #require(await origin.waitForClose(of: connection))
      delays.append(cancelled.duration(to: closed))
    }
    return delays.sorted()[2]
  }

  @Test("cancelling closes the connection at once while the fetch waits for the response")
  func waitingForHead() async throws {
    let delay = try await medianDelay { connection in
      let (fetcher, url) = (fetcher, origin.url("/silent"))
      let task = Task { await failure(of: fetcher, request(url)) }
      await origin.waitForRequests(to: "/silent", count: connection)
      let start = ContinuousClock.now
      task.cancel()
      #expect(await task.value == .cancelled)
      return start
    }
    #expect(delay < atOnce)
  }

  @Test("cancelling closes the connection at once while the reader waits for bytes")
  func waitingForBytes() async throws {
    let delay = try await medianDelay { connection in
      let response = try await fetcher.fetch(request(origin.url("/stalled")))
      #expect(try await response.body.next()?.count == 100)
      let task = Task { () throws(FetchError) in try await response.body.next() }
      await Task.yield()
      let start = ContinuousClock.now
      task.cancel()
      await #expect(throws: FetchError.cancelled) { try await task.value }
      await #expect(throws: FetchError.cancelled) { try await response.body.next() }
      return start
    }
    #expect(delay < atOnce)
  }

  @Test("releasing the body closes the connection at once")
  func droppedBody() async throws {
    let delay = try await medianDelay { _ in
      _ = try await fetcher.fetch(request(origin.url("/stalled")))
      return .now
    }
    #expect(delay < atOnce)
  }

  @Test("releasing the body closes the connection while the transfer is paused")
  func droppedHeldBack() async throws {
    origin.on("/endless", .endless())
    var response: FetchedResponse? = try await fetcher.fetch(request(origin.url("/endless")))
    await poll { origin.sentBytes(on: 1) > 1_000_000 }
    #expect(response != nil)
    response = nil
    #expect(await origin.waitForClose(of: 1) != nil)
  }

  @Test("a fetch that is cancelled before it begins sends nothing")
  func beforehand() async {
    let (fetcher, url) = (fetcher, origin.url("/a"))
    let task = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      return await failure(of: fetcher, request(url))
    }
    #expect(await task.value == .cancelled)
    #expect(origin.requests.isEmpty)
  }

  @Test("a cancel at any moment ends each fetch once, and no connection stays busy")
  func hostileTiming() async {
    let (fetcher, url) = (fetcher, origin.url("/a"))
    for round in 0..<10 {
      let tasks = (0..<100).map { _ in Task { await failure(of: fetcher, request(url)) } }
      for (index, task) in tasks.enumerated() where index % 4 != 0 {
        if index % 7 == round % 7 { try? await Task.sleep(for: .microseconds(index * 10)) }
        task.cancel()
      }
      for (index, task) in tasks.enumerated() {
        let error = await task.value
        #expect(error == nil || index % 4 != 0 && error == .cancelled)
      }
    }
    #expect(await failure(of: fetcher, request(url)) == nil)
  }
}

@Suite("A slow reader")
struct BackPressureTests {
  @Test("a slow reader pauses its transfer without a stall and receives everything")
  func heldBack() async throws {
    let origin = try ScriptedOrigin()
    let body = bytes(24_000_000)
    origin.on("/a", .ok(body))
    let fetcher = try FetchTests.fetcher { $0.stallTimeout = .milliseconds(200) }
    let response = try await fetcher.fetch(request(origin.url("/a"), timeout: .seconds(30)))
    var sent = -1
    for _ in 0..<50 where sent != origin.sentBytes(on: 1) {
      sent = origin.sentBytes(on: 1)
      try await Task.sleep(for: .milliseconds(300))
    }
    #expect(sent < 16_000_000, "only as many bytes as the buffers hold")
    try await Task.sleep(for: .milliseconds(500))
    #expect(origin.sentBytes(on: 1) == sent)
    let first = try #require(await response.body.next())
    #expect(first.count <= 262_144)
    #expect(first + (try await readAll(response.body)) == body)
  }

  @Test("a slow reader still reaches the timeout")
  func timeout() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/a", .endless())
    let response = try await FetchTests.fetcher().fetch(
      request(origin.url("/a"), timeout: .milliseconds(400)))
    #expect(await origin.waitForClose(of: 1) != nil)
    await #expect(throws: FetchError.timeout(seconds: 0.4)) { try await readAll(response.body) }
  }

  @Test("a slow reader does not delay other transfers")
  func others() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/endless", .endless())
    origin.on("/a", .ok(bytes(1_000_000)))
    let fetcher = try FetchTests.fetcher()
    let held = try await fetcher.fetch(request(origin.url("/endless")))
    for _ in 0..<20 {
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
    }
    #expect(try await held.body.next() != nil)
  }
}

@Suite("Many transfers", .serialized)
struct ManyTransfersTests {
  @Test("a thousand stalled transfers do not delay another one, and cancelling ends them")
  func stalled() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/stalled", .stalled(bytes(1_000), after: 100))
    origin.on("/a", .ok(bytes(10_000)))
    let (fetcher, url) = (try FetchTests.fetcher(), origin.url("/stalled"))
    let tasks = (0..<1_000).map { _ in
      Task { await failure(of: fetcher, request(url, timeout: .seconds(600))) }
    }
    #expect(await origin.waitForRequests(to: "/stalled", count: 1_000))
    #expect(origin.openConnections == 1_000)
    for _ in 0..<20 { #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil) }
    for task in tasks { task.cancel() }
    for task in tasks { #expect(await task.value == .cancelled) }
    #expect(await poll { origin.openConnections <= 1 })
  }

  @Test("transfers beyond the connection limit wait in a queue")
  func bounded() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/a", ScriptedReply.ok(bytes(100)).delayed(by: .milliseconds(50)))
    let fetcher = try FetchTests.fetcher {
      $0.maxConnections = 4
      $0.connectTimeout = .milliseconds(100)
    }
    let url = origin.url("/a")
    let tasks = (0..<40).map { _ in Task { await failure(of: fetcher, request(url)) } }
    for task in tasks { #expect(await task.value == nil) }
    #expect(origin.acceptedConnections <= 4)
  }

  @Test("a queued transfer can time out or be cancelled, and is then never sent")
  func endedWhileWaiting() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/endless", .endless())
    origin.on("/a", .ok(bytes(100)))
    let fetcher = try FetchTests.fetcher { $0.maxConnections = 1 }
    let running = Task {
      await failure(of: fetcher, request(origin.url("/endless"), maxBytes: .max))
    }
    #expect(await origin.waitForRequests(to: "/endless"))
    let url = origin.url("/a")
    let cancelled = Task { await failure(of: fetcher, request(url)) }
    #expect(
      await failure(of: fetcher, request(url, timeout: .milliseconds(200)))
        == .timeout(seconds: 0.2))
    cancelled.cancel()
    #expect(await cancelled.value == .cancelled)
    #expect(origin.requests(to: "/a").isEmpty)
    running.cancel()
    #expect(await running.value == .cancelled)
    #expect(await failure(of: fetcher, request(url)) == nil)
    #expect(origin.requests(to: "/a").count == 1)
  }
}
