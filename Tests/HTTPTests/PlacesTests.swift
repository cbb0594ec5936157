import Foundation
import HTTPTypes
import Testing

@testable import HTTP

@Suite("A server without free connection slots")
struct PlacesTests {
  /// Responds to `/wait` only when its client disconnects.
  private static let handler: RequestHandler = { request in
    if request.path == "/wait" { try? await Task.sleep(for: .seconds(600)) }
    return .text(request.path)
  }
  private static let wait = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
  private static let probe = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"

  @Test("the next client gets a free slot, or one that can be freed")
  func rule() {
    var configuration = HTTPServer.Configuration()
    (configuration.maxConnections, configuration.probes) = (3, (["/livez"], 2))
    let places = ConnectionSlots(configuration)
    func next(_ taken: Int, _ probes: Int, idle: Set<ConnectionSlots.Kind> = []) -> ConnectionSlots
      .Kind?
    {
      places.nextSlot(taken: taken, byProbes: probes) { idle.contains($0) }
    }
    #expect(next(2, 0) == .regular)
    #expect(next(3, 0, idle: [.regular]) == .regular)
    #expect(next(3, 1) == .probe)
    #expect(next(3, 2) == nil)
    #expect(next(3, 2, idle: [.probe]) == .probe)
    configuration.probes.paths = []
    #expect(ConnectionSlots(configuration).nextSlot(taken: 3, byProbes: 0) { $0 == .probe } == nil)
  }

  @Test("the connection that has waited longest for a request is evicted")
  func idle() async throws {
    try await Served.with({ $0.maxConnections = 3 }, handler: Self.handler) { port, server in
      let waiting = try RawClient(port)
      try waiting.send(Self.wait)
      try server.isAnswering(1)
      let clients = try (0..<2).map { _ in try RawClient(port) }
      for client in clients { #expect(try client.exchange(get).status == 200) }
      try server.isAnswering(1)
      // An incomplete request does not count as a request.
      try clients[1].send("GET / HTTP/1.1\r\n")
      let next = try RawClient(port)
      #expect(try next.exchange(get).status == 200)
      try server.isAnswering(1)
      #expect(try clients[0].isClosed())
      let last = try RawClient(port)
      #expect(try last.exchange(get).status == 200)
      #expect(try clients[1].isClosed())
      #expect(try next.exchange(get).status == 200)
      waiting.receiveTimeout(seconds: 1)
      #expect(throws: RawClient.Failure.self) { try waiting.answer() }
    }
  }

  @Test("a probe is answered, and other requests are refused")
  func probes() async throws {
    try await Served.with(
      { ($0.maxConnections, $0.probes) = (3, (["/livez"], 2)) }, handler: Self.handler
    ) { port, server in
      let waiting = try (0..<3).map { _ in try RawClient(port) }
      for client in waiting { try client.send(Self.wait) }
      try server.isAnswering(3)
      for _ in 0..<5 {
        let answer = try RawClient(port).exchange(Self.probe)
        #expect(answer.status == 200 && answer.field("connection") == "close")
        let other = try RawClient(port)
        #expect(try other.exchange(get).body == "overloaded")
        #expect(try other.isClosed())
      }
      // Silent clients do not prevent the answer to a probe either.
      let silent = try (0..<4).map { _ in try RawClient(port) }
      #expect(try RawClient(port).exchange(Self.probe).status == 200)
      withExtendedLifetime((waiting, silent)) {}
    }
  }

  @Test("every slot is free again after its client disconnected in any way")
  func leaving() async throws {
    let served = try Served(
      { ($0.maxConnections, $0.probes) = (8, (["/livez"], 4)) }, handler: Self.handler)
    let port = served.port
    try await blocking {
      for round in 0..<20 {
        let clients = try (0..<14).map { _ in try RawClient(port) }
        for (number, client) in clients.enumerated() where number % 3 != round % 3 {
          _ = try client.sendSome(Array((number.isMultiple(of: 2) ? Self.wait : "GET ").utf8))
        }
      }
    }
    #expect(await eventually { served.server.statistics.connections == 0 })
    #expect(await eventually { served.server.statistics.active == 0 })
    await served.server.stop(within: .zero)
  }
}
