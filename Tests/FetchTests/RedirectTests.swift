import Fetch
import Jobs
import Synchronization
import TestSupport
import Testing

@Suite("Redirects")
struct RedirectTests {
  private let origin: ScriptedOrigin
  private let fetcher: CurlFetcher

  init() throws {
    origin = try ScriptedOrigin()
    fetcher = try FetchTests.fetcher()
    origin.on("/images/b.png", .ok(bytes(10)))
  }

  @Test("every status that redirects a GET is followed", arguments: [301, 302, 303, 307, 308])
  func statuses(status: Int) async throws {
    origin.on("/a", .redirect(to: "/images/b.png", status: status))
    let response = try await fetcher.fetch(request(origin.url("/a")))
    #expect(response.url.string == origin.url("/images/b.png"))
    #expect(try await readAll(response.body) == bytes(10))
  }

  @Test(
    "a location is resolved against the URL that sent it",
    arguments: [
      ("b.png", "/images/b.png"), ("./b.png?x=1", "/images/b.png?x=1"),
      ("../images/b.png", "/images/b.png"), ("/images/b.png#part", "/images/b.png"),
      ("?x=%20y", "/images/a?x=%20y"), ("/images/b.png?q=a b", "/images/b.png?q=a%20b"),
      ("/images/ü.png", "/images/%c3%bc.png"),
    ])
  func relative(location: String, target: String) async throws {
    origin.on("/images/a") { request in
      request.target == "/images/a" ? .redirect(to: location) : .ok(bytes(10))
    }
    _ = await failure(of: fetcher, request(origin.url("/images/a")))
    #expect(origin.requests.last?.target.lowercased() == target)
  }

  /// `Location` fields as bytes, and the targets of the following requests.
  private static let locations: [(bytes: [UInt8], target: String)] = [
    (Array("/caf".utf8) + [0xE9], "/caf%E9"), ([0x2F, 0xC4, 0xFA], "/%C4%FA"),
    (Array("/é.jpg?x=".utf8) + [0xE9], "/%C3%A9.jpg?x=%E9"),
    (Array("caf".utf8) + [0xE9], "/caf%E9"), ([0x3F, 0xFF, 0x20, 0x80], "/a?%FF%20%80"),
  ]

  @Test("the bytes of a location are kept, whatever their character set", arguments: 0..<5)
  func bytesOfLocation(place: Int) async {
    let (location, target) = Self.locations[place]
    let isPath = location[0] == UInt8(ascii: "/")
    for prefix in ["", "http://127.0.0.1:\(origin.port)", "//127.0.0.1:\(origin.port)"]
    where isPath || prefix.isEmpty {
      let head = Array("HTTP/1.1 302 Found\r\nLocation: \(prefix)".utf8) + location
      let end = Array("\r\nContent-Length: 0\r\n\r\n".utf8)
      origin.on("/a", ScriptedReply(.send(head + end)))
      _ = await failure(of: fetcher, request(origin.url("/a")))
      #expect(origin.requests.last?.target == target)
    }
  }

  @Test("an internationalised host in a location is read as UTF-8")
  func hostOfLocation() async throws {
    let resolver = ScriptedResolver { _ in ["127.0.0.1"] }
    let fetcher = try FetchTests.fetcher { $0.resolver = resolver }
    for scheme in ["http:", ""] {
      let head =
        "HTTP/1.1 302 Found\r\nLocation: \(scheme)//bücher.test:\(origin.port)/images/b.png?"
      origin.on(
        "/a",
        ScriptedReply(
          .send(Array(head.utf8) + [0xE9] + Array("\r\nContent-Length: 0\r\n\r\n".utf8))))
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
      #expect(origin.requests.last?.target == "/images/b.png?%E9")
    }
    #expect(resolver.asked == ["xn--bcher-kva.test", "xn--bcher-kva.test"])
  }

  @Test("a location without a scheme and an absolute location are followed")
  func absolute() async throws {
    for location in ["//127.0.0.1:\(origin.port)/images/b.png", origin.url("/images/b.png")] {
      origin.on("/a", .redirect(to: location))
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil, "\(location)")
    }
  }

  @Test("a redirect to a stored response ends the fetch without another request")
  func stored() async throws {
    let other = try ScriptedOrigin()
    other.on("/b", .ok(bytes(10)))
    origin.on("/a", .redirect(to: "/images/b.png"))
    origin.on("/images/b.png", .redirect(to: other.url("/b"), status: 301))
    let notes = Notes()
    var request = request(
      origin.url("/a"), headers: [HeaderField(name: "Cookie", value: "a=1")])
    request.admission = { origin async throws(FetchError) in notes.add(origin) }
    request.lookUp = { [url = other.url("/b")] target, hasFields in
      notes.add("\(target.string) \(hasFields)")
      return target.string == url ? .answers : .conditions([])
    }
    let response = try await fetcher.fetch(request)
    #expect(response.isStored && response.url.string == other.url("/b") && !response.hadFields)
    #expect(response.redirects.map(\.status) == [302, 301])
    #expect(try await response.body.next() == nil)
    #expect(
      notes.all == ["\(origin.url("/images/b.png")) true", "\(other.url("/b")) false"])
    #expect(other.acceptedConnections == 0)
    request.lookUp = { _, _ in .conditions([HeaderField(name: "If-None-Match", value: "\"v\"")]) }
    _ = try await fetcher.fetch(request)
    #expect(other.requests.first?.header("If-None-Match") == "\"v\"")
  }

  @Test("redirects are followed up to the limit")
  func limit() async {
    origin.on("/loop", .redirect(to: "/loop"))
    #expect(
      await failure(of: fetcher, request(origin.url("/loop"))) == .tooManyRedirects(limit: 5))
    #expect(origin.requests.count == 6)
  }

  @Test(
    "an unusable location is reported",
    arguments: [
      "", "http://", "http:///x", "https:/x", "http://user:password@127.0.0.1/", "\\\\evil\\x",
      "http://127.0.0.1:99999/", "http://a b/", "http://[::1/", "/a\tb",
    ])
  func unusable(location: String) async {
    origin.on("/a", .redirect(to: location))
    let error = await failure(of: fetcher, request(origin.url("/a")))
    guard case .badRedirect(302, _) = error else {
      Issue.record("\(location): \(String(describing: error))")
      return
    }
    #expect(origin.requests.count == 1)
  }

  @Test("a redirect with no location, or with two different ones, is an error")
  func missing() async {
    origin.on("/none", .status(302))
    #expect(
      await failure(of: fetcher, request(origin.url("/none")))
        == .badRedirect(status: 302, location: nil))
    origin.on("/two", .status(302, headers: [("Location", "/x"), ("Location", "/y")]))
    guard
      case .badRedirect = await failure(of: fetcher, request(origin.url("/two")))
    else {
      Issue.record("followed one of two")
      return
    }
    #expect(origin.requests.count == 2)
  }

  @Test(
    "redirects to other schemes are blocked",
    arguments: [
      ("ftp://127.0.0.1/x", "ftp"), ("file:///etc/passwd", "file"), ("javascript:1", "javascript"),
      ("data:image/png;base64,AA", "data"), ("GOPHER://127.0.0.1/", "gopher"),
    ])
  func schemes(location: String, scheme: String) async {
    origin.on("/a", .redirect(to: location))
    #expect(
      await failure(of: fetcher, request(origin.url("/a")))
        == .blocked(target: "A redirect", .scheme(scheme)))
  }

  @Test(
    "a redirect to a blocked address is blocked",
    arguments: [
      ("http://169.254.169.254/latest/meta-data/", "169.254.169.254", "Link Local"),
      ("http://[::1]/", "::1", "Loopback Address"),
      ("http://0/", "0.0.0.0", "\"This host on this network\""),
      ("http://10.0.0.1/", "10.0.0.1", "Private-Use"), ("//0x7f000002/", "127.0.0.2", "Loopback"),
    ])
  func blockedAddress(location: String, address: String, name: String) async {
    origin.on("/a", .redirect(to: location))
    #expect(
      await failure(of: fetcher, request(origin.url("/a")))
        == .blocked(target: address, .address(address, name: name)))
  }

  @Test("no connection is opened to a blocked address")
  func nothingSent() async throws {
    let forbidden = try ScriptedOrigin(host: "127.0.0.2")
    origin.on("/a", .redirect(to: forbidden.url("/secret")))
    #expect(
      await failure(of: fetcher, request(origin.url("/a")))
        == .blocked(target: "127.0.0.2", .address("127.0.0.2", name: "Loopback")))
    #expect(forbidden.acceptedConnections == 0)
  }

  @Test("hosts and ports are checked for each redirect")
  func hostsAndPorts() async throws {
    let port = origin.port
    let own = try FetchTests.fetcher {
      $0.policy.allowPorts = [port]
      $0.policy.denyHosts = ["denied.test"]
    }
    origin.on("/port", .redirect(to: "http://127.0.0.1:1/"))
    #expect(
      await failure(of: own, request(origin.url("/port")))
        == .blocked(target: "127.0.0.1", .port(1)))
    origin.on("/host", .redirect(to: "http://DENIED.test.:\(port)/"))
    #expect(
      await failure(of: own, request(origin.url("/host"))) == .blocked(target: "denied.test", .host)
    )
  }

  @Test("the client's fields are sent to the first origin only, and no Referer is sent")
  func credentials() async throws {
    let other = try ScriptedOrigin()
    other.on("/b", .redirect(to: origin.url("/images/b.png")))
    origin.on("/a", .redirect(to: "/same"))
    origin.on("/same", .redirect(to: other.url("/b")))
    let headers = ["Authorization", "Cookie", "X-Key"].map { HeaderField(name: $0, value: "s") }
    #expect(await failure(of: fetcher, request(origin.url("/a"), headers: headers)) == nil)
    for name in headers.map(\.name) {
      #expect(origin.requests.map { $0.header(name) } == ["s", "s", nil])
      #expect(other.requests.map { $0.header(name) } == [nil])
    }
    #expect((origin.requests + other.requests).allSatisfy { $0.header("Referer") == nil })
  }

  @Test("cookies that an origin sets are not sent back")
  func cookies() async {
    origin.on(
      "/a",
      .status(302, headers: [("Location", "/images/b.png"), ("Set-Cookie", "a=b; Path=/")]))
    #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
    #expect(origin.requests.last?.header("Cookie") == nil)
  }

  @Test("the fetcher neither waits for nor reads a redirect's body")
  func redirectBody() async throws {
    let head = ScriptedReply.head(302, [("Location", "/images/b.png")])
    for (index, step) in [
      ScriptedReply.Step.waitForClose, .repeating([UInt8](repeating: 1, count: 10_000)),
    ].enumerated() {
      origin.on("/a", ScriptedReply(.send(head), step))
      #expect(await failure(of: fetcher, request(origin.url("/a"))) == nil)
      let connection = try #require(origin.requests(to: "/a").last).connection
      #expect(await origin.waitForClose(of: connection) != nil, "\(index)")
    }
  }

  @Test("the timeout covers all redirects together")
  func timeout() async {
    origin.on("/a", ScriptedReply.redirect(to: "/a").delayed(by: .milliseconds(200)))
    let error = await failure(of: fetcher, request(origin.url("/a"), timeout: .milliseconds(500)))
    #expect(error == .timeout(seconds: 0.5))
  }
}

private final class Notes: Sendable {
  private let lines = Mutex<[String]>([])

  var all: [String] { lines.withLock { $0 } }

  func add(_ line: String) { lines.withLock { $0.append(line) } }
}
