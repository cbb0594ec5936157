import Jobs
import TestSupport
import Testing

@testable import Fetch

/// Passes unchecked routes to the event loop, as if the first check of addresses had failed.
@Suite("The second check of addresses, at the socket")
struct SecondBarrierTests {
  private func ask(
    _ origin: ScriptedOrigin, host: String = "name.test", pinned: [String],
    proxy: ProxyRoute? = nil
  ) async throws -> FetchError? {
    var configuration = CurlFetcher.Configuration()
    configuration.policy.allowNetworks = [CIDR("127.0.0.1/32")!]
    let settings = TransferSettings(configuration)
    let running = RunningLoop(try EventLoop(settings: settings) { _ in })
    let exchange = TransferExchange(id: 1, loop: running.loop, capacity: 1_000, maxBytes: 1_000)
    let route = TransferRoute(
      url: "http://\(host):\(origin.port)/", host: host, port: origin.port,
      addresses: pinned.map { IPAddress($0)! }, nameTime: .zero, policy: configuration.policy,
      proxy: proxy)
    running.loop.post(
      .start(
        TransferPlan(
          exchange: exchange, route: route, headers: [], deadline: .now + .seconds(10),
          timeout: .seconds(10), started: .now)))
    do throws(FetchError) {
      _ = try await exchange.head()
      return nil
    } catch {
      return error
    }
  }

  @Test("no socket is opened to a forbidden address")
  func forbidden() async throws {
    let origin = try ScriptedOrigin(host: "127.0.0.2")
    #expect(
      try await ask(origin, pinned: ["127.0.0.2"])
        == .blocked(target: "name.test", .address("127.0.0.2", name: "Loopback")))
    #expect(origin.acceptedConnections == 0)
  }

  @Test("a permitted address is connected to")
  func permitted() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    #expect(try await ask(origin, pinned: ["127.0.0.1"]) == nil)
  }

  @Test("libcurl never looks up a name whose pin it did not accept", arguments: [false, true])
  func unpinned(isProxy: Bool) async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    // libcurl takes a leading hyphen as a request to remove the pin.
    let proxy = ProxyRoute(
      url: "http://-name.test:\(origin.port)", host: "-name.test", port: origin.port,
      addresses: [IPAddress("127.0.0.1")!])
    let host = isProxy ? "name.test" : "-name.test"
    #expect(
      try await ask(origin, host: host, pinned: ["127.0.0.1"], proxy: isProxy ? proxy : nil)
        == .connectFailure(host: host, detail: "the resolved address could not be set"))
    guard case .connectFailure = try await ask(origin, pinned: []) else {
      Issue.record("an empty pin was accepted")
      return
    }
    #expect(origin.acceptedConnections == 0)
  }
}
