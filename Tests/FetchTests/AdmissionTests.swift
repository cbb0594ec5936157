import Fetch
import Jobs
import Synchronization
import TestSupport
import Testing

@Suite("Admission to another origin")
struct AdmissionTests {
  private let first: ScriptedOrigin
  private let second: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    first = try ScriptedOrigin()
    second = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher()
    first.on("/a", .redirect(to: second.url("/b")))
    second.on("/b", .ok(bytes(10)))
  }

  private final class Asked: Sendable {
    private let list = Mutex<[String]>([])
    var origins: [String] { list.withLock { $0 } }
    func note(_ origin: String) { list.withLock { $0.append(origin) } }
  }

  private func request(
    _ url: String, timeout: Duration = .seconds(60),
    _ admission: @escaping @Sendable (String) async throws(FetchError) -> Void
  ) -> FetchRequest {
    var request = FetchTests.request(url, timeout: timeout)
    request.admission = admission
    return request
  }

  @Test("every redirect to another origin requests admission, also one back to the first")
  func asked() async {
    let asked = Asked()
    first.on("/a", .redirect(to: "/same"))
    first.on("/same", .redirect(to: second.url("/b")))
    second.on("/b", .redirect(to: first.url("/again")))
    first.on("/again", .redirect(to: second.url("/c")))
    second.on("/c", .ok(bytes(10)))
    let error = await failure(
      of: fetcher, request(first.url("/a")) { (origin) throws(FetchError) in asked.note(origin) })
    #expect(error == nil)
    let (back, there) = (SourceURL(first.url("/"))!.origin, SourceURL(second.url("/"))!.origin)
    #expect(asked.origins == [there, back, there])
  }

  @Test("another port or scheme of the same host is another origin")
  func otherOrigins() async throws {
    let asked = Asked()
    // The origin does not answer the handshake.
    let fetcher = try FetchTests.fetcher { $0.connectTimeout = .seconds(1) }
    first.on("/a", .redirect(to: "https://127.0.0.1:\(first.port)/"))
    _ = await failure(
      of: fetcher, request(first.url("/a")) { (origin) throws(FetchError) in asked.note(origin) })
    #expect(asked.origins == ["https://127.0.0.1:\(first.port)"])
  }

  @Test("another spelling of a host is the same origin and receives the client's fields")
  func otherSpellings() async throws {
    let (asked, port) = (Asked(), first.port)
    first.on("/a", .redirect(to: "/b"))
    first.on("/b", .redirect(to: "http://0x7f.1:\(port)/c"))
    first.on("/c", .redirect(to: "http://１２７。1:\(port)/d"))
    first.on("/d", .redirect(to: "http://2130706433:\(second.port)/b"))
    second.on("/b", .redirect(to: "http://127.0.0.1.:\(second.port)/e"))
    second.on("/e", .ok(bytes(10)))
    var request = request("http://127.1:\(port)/a") { (origin) throws(FetchError) in
      asked.note(origin)
    }
    request.headers = [HeaderField(name: "X-Api-Key", value: "k")]
    #expect(await failure(of: fetcher, request) == nil)
    #expect(asked.origins == ["http://127.0.0.1:\(second.port)"])
    #expect(first.requests.map { $0.header("X-Api-Key") } == ["k", "k", "k", "k"])
    #expect(second.requests.map { $0.header("X-Api-Key") } == [nil, nil])
  }

  @Test("no request is sent before the origin admits it")
  func awaited() async throws {
    let (second, isGiven) = (second, Asked())
    let error = await failure(
      of: fetcher,
      request(first.url("/a")) { (origin) throws(FetchError) in
        try? await Task.sleep(for: .milliseconds(50))
        #expect(second.acceptedConnections == 0)
        isGiven.note(origin)
      })
    #expect(error == nil)
    #expect(isGiven.origins.count == 1 && second.requests.count == 1)
  }

  @Test("a refused admission fails the fetch, and no request is sent")
  func refused() async {
    let refusal = FetchError.unreachable(origin: second.url(""), failures: 5, seconds: 30)
    let error = await failure(
      of: fetcher, request(first.url("/a")) { (_) throws(FetchError) in throw refusal })
    #expect(error == refusal)
    #expect(second.acceptedConnections == 0)
  }

  @Test("the wait for admission counts toward the timeout")
  func timeout() async {
    let start = ContinuousClock.now
    let error = await failure(
      of: fetcher,
      request(first.url("/a"), timeout: .milliseconds(300)) { (_) throws(FetchError) in
        do { try await Task.sleep(for: .seconds(60)) } catch { throw .cancelled }
      })
    #expect(error == .timeout(seconds: 0.3))
    #expect(start.duration(to: .now) < .seconds(30))
    #expect(second.acceptedConnections == 0)
  }

  @Test("cancelling the fetch ends the wait for admission")
  func cancelled() async {
    let (fetcher, asked) = (fetcher, Asked())
    let request = request(first.url("/a"), timeout: .seconds(1_000_000)) {
      (origin) throws(FetchError) in
      asked.note(origin)
      do { try await Task.sleep(for: .seconds(60)) } catch { throw .cancelled }
    }
    let task = Task { await failure(of: fetcher, request) }
    await poll { !asked.origins.isEmpty }
    task.cancel()
    #expect(await task.value == .cancelled)
    #expect(second.acceptedConnections == 0)
  }

  @Test("a redirect beyond the limit requests no admission")
  func notNeeded() async throws {
    let asked = Asked()
    let strict = try FetchTests.fetcher { $0.maxRedirects = 0 }
    let error = await failure(
      of: strict, request(first.url("/a")) { (origin) throws(FetchError) in asked.note(origin) })
    #expect(error == .tooManyRedirects(limit: 0))
    #expect(asked.origins == [])
  }
}
