import Fetch
import Foundation
import Jobs
import Synchronization
import TestSupport
import Testing

@Suite("Host names and their addresses")
struct NameTests {
  private let origin: ScriptedOrigin

  init() throws {
    origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
  }

  private func url(_ host: String) -> String { "http://\(host):\(origin.port)/" }

  private func fetcher(
    _ resolver: ScriptedResolver, _ change: (inout CurlFetcher.Configuration) -> Void = { _ in }
  ) throws -> CurlFetcher {
    try FetchTests.fetcher {
      $0.resolver = resolver
      change(&$0)
    }
  }

  @Test(
    "every spelling of a loopback address is blocked without a lookup",
    arguments: [
      "127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "0X7F.0.0.1", "2130706433",
      "017700000001", "0177.0.0.1", "0000000000000177.0.0.01", "127.0.0.1.", "0x7f.1.", "0", "0x",
      "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[0:0:0:0:0:0:0:1]",
      "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1",
    ])
  func numeric(host: String) async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.1"] }
    let strict = try fetcher(resolver) { $0.policy.allowNetworks = [] }
    let error = await failure(of: strict, request(url(host)))
    guard case .blocked(_, .address) = error else {
      Issue.record("\(host): \(String(describing: error))")
      return
    }
    #expect(origin.acceptedConnections == 0)
    #expect(resolver.asked.isEmpty)
  }

  @Test(
    "the same spellings of an allowed address connect to it",
    arguments: ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001", "127.0.0.1."])
  func numericAllowed(host: String) async throws {
    let resolver = ScriptedResolver { _ in [] }
    #expect(try await failure(of: fetcher(resolver), request(url(host))) == nil)
    #expect(origin.requests[0].header("Host") == "127.0.0.1:\(origin.port)")
  }

  @Test(
    "a host that is neither a name nor an address is never looked up",
    arguments: [
      "1.2.3.4.5", "256.256.256.256", "4294967296", "a..b", ".a", "a..", "08.1", "x.0x7f", "-a.b",
      "-", "-1.2.3.4", "\(String(repeating: "a", count: 64)).test",
    ])
  func neither(host: String) async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.1"] }
    #expect(try await failure(of: fetcher(resolver), request(url(host))) == .badHost(host))
    #expect(resolver.asked.isEmpty)
  }

  @Test("the system's own names are checked, too")
  func localhost() async throws {
    let strict = try FetchTests.fetcher { $0.policy.allowNetworks = [] }
    guard
      case .blocked("localhost", .address) = await failure(of: strict, request(url("localhost")))
    else {
      Issue.record("localhost was not blocked")
      return
    }
    #expect(origin.acceptedConnections == 0)
    #expect(try await failure(of: FetchTests.fetcher(), request(url("localhost"))) == nil)
    #expect(origin.requests[0].header("Host") == "localhost:\(origin.port)")
  }

  @Test("the fetcher connects to the checked address, whatever the name means elsewhere")
  func pinned() async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.1"] }
    let fetcher = try fetcher(resolver)
    #expect(await failure(of: fetcher, request(url("images.invalid"))) == nil)
    #expect(await failure(of: fetcher, request(url("Images.INVALID."))) == nil)
    #expect(resolver.asked == ["images.invalid", "images.invalid"])
    #expect(
      origin.requests.map { $0.header("Host") == "images.invalid:\(origin.port)" } == [true, true])
  }

  @Test("only the permitted ones of several addresses are tried")
  func several() async throws {
    let forbidden = try ScriptedOrigin(host: "127.0.0.2", port: origin.port)
    let mixed = ScriptedResolver { _ in ["10.0.0.1", "127.0.0.2", "127.0.0.1", "::1"] }
    #expect(try await failure(of: fetcher(mixed), request(url("mixed.test"))) == nil)
    let bad = ScriptedResolver { _ in ["127.0.0.2", "10.0.0.1"] }
    #expect(
      try await failure(of: fetcher(bad), request(url("bad.test")))
        == .blocked(target: "bad.test", .address("127.0.0.2", name: "Loopback")))
    #expect(forbidden.acceptedConnections == 0)
  }

  @Test("if one address refuses the connection, the next is tried")
  func nextAddress() async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.9", "127.0.0.1"] }
    let fetcher = try fetcher(resolver) { $0.policy.allowNetworks = [CIDR("127.0.0.0/8")!] }
    #expect(await failure(of: fetcher, request(url("two.test"))) == nil)
  }

  @Test("a changed address of a name is checked again before it is used")
  func rebinding() async throws {
    let resolver = ScriptedResolver { count in count == 1 ? ["127.0.0.1"] : ["169.254.169.254"] }
    let fetcher = try fetcher(resolver)
    #expect(await failure(of: fetcher, request(url("rebind.test"))) == nil)
    #expect(resolver.asked.count == 1)
    #expect(
      await failure(of: fetcher, request(url("rebind.test")))
        == .blocked(target: "rebind.test", .address("169.254.169.254", name: "Link Local")))
    #expect(origin.requests.count == 1)
  }

  @Test("only successful lookups are cached, for a short time")
  func cached() async throws {
    let resolver = ScriptedResolver { count in count == 1 ? [] : ["127.0.0.1"] }
    let fetcher = try fetcher(resolver) { $0.lookupCacheTime = .seconds(60) }
    guard case .dnsFailure("a.test", _) = await failure(of: fetcher, request(url("a.test"))) else {
      throw FetchError.noData
    }
    for _ in 0..<3 { #expect(await failure(of: fetcher, request(url("a.test"))) == nil) }
    #expect(resolver.asked.count == 2)
  }

  @Test("internationalised names are looked up and sent in ASCII")
  func internationalised() async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.1"] }
    let fetcher = try fetcher(resolver) { $0.policy.denyHosts = ["*.日本.test"] }
    #expect(await failure(of: fetcher, request(url("Bücher.test"))) == nil)
    #expect(resolver.asked == ["xn--bcher-kva.test"])
    #expect(origin.requests[0].header("Host") == "xn--bcher-kva.test:\(origin.port)")
    let denied = await failure(of: fetcher, request(url("a.日本.test")))
    #expect(denied == .blocked(target: "a.xn--wgv71a.test", .host))
  }

  @Test("allowing a host does not allow its address")
  func hostAndAddress() async throws {
    let resolver = ScriptedResolver { _ in ["192.168.0.1"] }
    let fetcher = try fetcher(resolver) { $0.policy.allowHosts = ["intranet.test"] }
    #expect(
      await failure(of: fetcher, request(url("intranet.test")))
        == .blocked(target: "intranet.test", .address("192.168.0.1", name: "Private-Use")))
    #expect(
      await failure(of: fetcher, request(url("other.test")))
        == .blocked(target: "other.test", .host))
  }
}

@Suite("A slow name server")
struct SlowNameTests {
  @Test("a slow name does not delay other fetches, and its caller gives up in time")
  func stallsNobody() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    let release = Barrier()
    let resolver = ScriptedResolver { name, _ in
      if name.hasPrefix("slow") { release.wait() }
      return ["127.0.0.1"]
    }
    defer { release.open() }
    let fetcher = try FetchTests.fetcher {
      $0.resolver = resolver
      $0.connectTimeout = .milliseconds(2_500)
    }
    let slow = (0..<20).map { index in
      Task { await failure(of: fetcher, request("http://slow\(index).test/")) }
    }
    #expect(await poll { resolver.asked.count == 20 })
    for _ in 0..<5 {
      #expect(await failure(of: fetcher, request("http://quick.test:\(origin.port)/")) == nil)
    }
    for task in slow {
      guard case .dnsFailure? = await task.value else {
        Issue.record("a slow name did not fail")
        continue
      }
    }
  }

  @Test("a fetch that waits for a name can be cancelled and reaches its timeout")
  func cancelled() async throws {
    let release = Barrier()
    let resolver = ScriptedResolver { _, _ in
      release.wait()
      return ["127.0.0.1"]
    }
    defer { release.open() }
    let fetcher = try FetchTests.fetcher { $0.resolver = resolver }
    let task = Task { await failure(of: fetcher, request("http://slow.test/")) }
    await poll { !resolver.asked.isEmpty }
    task.cancel()
    #expect(await task.value == .cancelled)
    let late = await failure(of: fetcher, request("http://slow.test/", timeout: .milliseconds(100)))
    #expect(late == .timeout(seconds: 0.1))
    #expect(resolver.asked.count == 1, "equal names share one lookup")
  }

  @Test("slow names of one owner leave threads for another, even for a shared name")
  func hostage() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    let release = Barrier()
    let resolver = ScriptedResolver { name, _ in
      if name.hasPrefix("dead") { release.wait() }
      return ["127.0.0.1"]
    }
    defer { release.open() }
    let fetcher = try FetchTests.fetcher {
      $0.resolver = resolver
      $0.maxLookups = 4
    }
    let quick = "http://quick.test:\(origin.port)/"
    let (one, other) = (Owner("one"), Owner("other"))
    let dead = (0..<8).map { index in
      Task { await failure(of: fetcher, request("http://dead\(index).test/", for: one)) }
    }
    #expect(await poll { resolver.asked.count == 3 })
    let behind = Task { await failure(of: fetcher, request(quick, for: one)) }
    for _ in 0..<5 { #expect(await failure(of: fetcher, request(quick, for: other)) == nil) }
    #expect(resolver.asked.filter { $0.hasPrefix("dead") }.count == 3)
    for task in dead { task.cancel() }
    #expect(await behind.value == nil)
  }

  @Test("abandoned lookups do not use up the threads of others, up to a separate limit")
  func abandoned() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    let release = Barrier()
    let resolver = ScriptedResolver { name, _ in
      if name.hasPrefix("dead") { release.wait() }
      return ["127.0.0.1"]
    }
    defer { release.open() }
    let fetcher = try FetchTests.fetcher {
      $0.resolver = resolver
      $0.maxLookups = 2
    }
    let quick = "http://quick.test:\(origin.port)/"
    for round in 0..<3 {
      #expect(await failure(of: fetcher, request(quick)) == nil)
      let dead = (0..<2).map { index in
        Task { await failure(of: fetcher, request("http://dead\(round)-\(index).test/")) }
      }
      #expect(await poll { resolver.asked.count { $0.hasPrefix("dead") } == 2 * round + 2 })
      for task in dead { task.cancel() }
      for task in dead { #expect(await task.value == .cancelled) }
    }
    let late = await failure(of: fetcher, request(quick, timeout: .milliseconds(100)))
    #expect(late == .timeout(seconds: 0.1), "one owner may use six threads")
    #expect(await failure(of: fetcher, request(quick, for: Owner("other"))) == nil)
    release.open()
    #expect(await failure(of: fetcher, request(quick)) == nil)
  }
}

/// Resolves names with a test's function, which receives the name and the number of earlier lookups.
final class ScriptedResolver: NameResolver {
  private let log = Mutex<[String]>([])
  private let answer: @Sendable (String, Int) -> [String]

  init(_ answer: @escaping @Sendable (String, Int) -> [String]) { self.answer = answer }

  convenience init(_ answer: @escaping @Sendable (Int) -> [String]) {
    self.init { _, count in answer(count) }
  }

  var asked: [String] { log.withLock { $0 } }

  func addresses(of name: String) throws(ResolutionError) -> [IPAddress] {
    let count = log.withLock { log in
      log.append(name)
      return log.count
    }
    let addresses = answer(name, count).compactMap { IPAddress($0) }
    if addresses.isEmpty { throw ResolutionError(detail: "scripted") }
    return addresses
  }
}

/// Blocks threads until it is opened.
final class Barrier: Sendable {
  private let condition = NSCondition()
  private let isOpen = Mutex(false)

  func wait() {
    condition.lock()
    while !isOpen.withLock({ $0 }) { condition.wait() }
    condition.unlock()
  }

  func open() {
    condition.lock()
    isOpen.withLock { $0 = true }
    condition.broadcast()
    condition.unlock()
  }
}
