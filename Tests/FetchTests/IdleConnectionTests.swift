import Glibc
import Jobs
import TestSupport
import Testing

@testable import Fetch

@Suite("Idle connections")
struct IdleConnectionTests {
  private let idle: IdleConnections
  private let transfer: Transfer
  private let running: RunningLoop
  /// Stands in for the loop's epoll descriptor.
  private let watched: IdleConnections

  init() throws {
    let configuration = CurlFetcher.Configuration()
    let settings = TransferSettings(configuration)
    running = RunningLoop(try EventLoop(settings: settings) { _ in })
    idle = try IdleConnections()
    watched = try IdleConnections()
    let route = TransferRoute(
      url: "http://127.0.0.1:1/", host: "127.0.0.1", port: 1,
      addresses: [IPAddress("127.0.0.1")!], nameTime: .zero, policy: configuration.policy)
    let plan = TransferPlan(
      exchange: TransferExchange(id: 1, loop: running.loop, capacity: 1_000, maxBytes: 1_000),
      route: route, headers: [], deadline: .now + patience, timeout: patience, started: .now)
    transfer = try #require(
      Transfer(
        plan, settings: settings, handles: HandlePool(), idle: idle, epoll: watched.epoll))
  }

  /// Returns whether a socket is shut down when data arrives on it after libcurl stopped waiting for it.
  private func isShutDown(isConnected: Bool) -> Bool {
    var ends: [Int32] = [-1, -1]
    socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
    defer { for end in ends { close(end) } }
    transfer.opened(ends[0])
    transfer.waits(for: 2, on: ends[0])  // CURL_POLL_OUT
    transfer.isConnected = isConnected
    transfer.stopsWaiting(on: ends[0])
    send(ends[1], "x", 1, 0)
    return idle.shutDownActive()
  }

  @Test(
    "a socket that never connected is not idle: libcurl has closed it, and its number may be reused"
  )
  func unconnected() {
    #expect(isShutDown(isConnected: true))
    #expect(!isShutDown(isConnected: false))
  }

  @Test("a transfer is not connected after it opened another socket")
  func reopened() {
    transfer.isConnected = true
    var ends: [Int32] = [-1, -1]
    socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
    defer { for end in ends { close(end) } }
    transfer.opened(ends[0])
    #expect(!transfer.isConnected)
  }
}
