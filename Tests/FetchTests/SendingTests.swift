import Jobs
import TestSupport
import Testing

@testable import Fetch

@Suite("Requests under a separate policy")
struct SendingTests {
  private func post(_ url: String, by sender: CurlSender, within seconds: Double = 15) async
    -> Result<WebhookResponse, FetchError>
  {
    let request = WebhookRequest(
      SourceURL(url)!, body: Array(#"{"a":1}"#.utf8),
      fields: [HeaderField(name: "X-A", value: "b")],
      timeout: .seconds(seconds))
    do throws(FetchError) { return .success(try await sender.post(request)) } catch {
      return .failure(error)
    }
  }

  private func policy(_ change: (inout AddressPolicy) -> Void = { _ in }) -> AddressPolicy {
    var policy = AddressPolicy()
    policy.allowNetworks = [CIDR("127.0.0.1/32")!]
    policy.allowPorts = []
    change(&policy)
    return policy
  }

  @Test("a message arrives complete, as JSON, and the connection is used again")
  func whole() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .status(201, body: bytes(100)))
    let sender = try fetcher().sender(under: policy())
    for _ in 0..<3 {
      #expect(await post(origin.url("/?q=1"), by: sender) == .success(WebhookResponse(status: 201)))
    }
    let request = origin.requests[0]
    #expect(request.method == "POST" && request.target == "/?q=1")
    #expect(request.content == Array(#"{"a":1}"#.utf8) && request.header("x-a") == "b")
    #expect(request.header("content-type") == "application/json" && request.header("expect") == nil)
    #expect(origin.acceptedConnections == 1)
  }

  @Test("a request obeys its own policy and not the fetcher's, whichever is wider")
  func judged() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    let wide = try fetcher()
    let narrow = wide.sender(under: policy { $0.allowNetworks = [] })
    // A connection already exists.
    #expect(await failure(of: wide, request(origin.url("/"))) == nil)
    let blocked = FetchError.blocked(target: "127.0.0.1", .address("127.0.0.1", name: "Loopback"))
    #expect(await post(origin.url("/"), by: narrow) == .failure(blocked))
    let strict = try fetcher { $0.policy.allowNetworks = [] }
    #expect(
      await post(origin.url("/"), by: strict.sender(under: policy()))
        == .success(WebhookResponse(status: 200)))
    #expect(await failure(of: strict, request(origin.url("/"))) == blocked)
    let ports = wide.sender(under: policy { $0.allowPorts = [443] })
    #expect(
      await post(origin.url("/"), by: ports)
        == .failure(.blocked(target: "127.0.0.1", .port(origin.port))))
    let https = wide.sender(under: policy { $0.allowSchemes = ["https"] })
    #expect(
      await post(origin.url("/"), by: https)
        == .failure(.blocked(target: "127.0.0.1", .scheme("http"))))
    #expect(origin.requests.count == 2)
  }

  @Test("a name that leads to a forbidden address is refused, even if only the second lookup does")
  func rebinding() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/", .ok(bytes(10)))
    let resolver = ScriptedResolver { $0 == 1 ? ["127.0.0.1"] : ["127.0.0.2"] }
    let sender = try fetcher { $0.resolver = resolver }.sender(under: policy())
    let url = "http://receiver.test:\(origin.port)/"
    #expect(await post(url, by: sender) == .success(WebhookResponse(status: 200)))
    #expect(
      await post(url, by: sender)
        == .failure(.blocked(target: "receiver.test", .address("127.0.0.2", name: "Loopback"))))
    #expect(origin.requests.count == 1)
  }

  @Test("no redirect is followed, and Retry-After is reported")
  func answers() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/away", .redirect(to: origin.url("/there"), status: 308))
    origin.on("/later", .status(503, headers: [("Retry-After", "7")]))
    let sender = try fetcher().sender(under: policy())
    #expect(await post(origin.url("/away"), by: sender) == .success(WebhookResponse(status: 308)))
    #expect(
      await post(origin.url("/later"), by: sender)
        == .success(WebhookResponse(status: 503, retryAfter: .seconds(7))))
    #expect(origin.requests(to: "/there").isEmpty)
  }

  @Test("a request without a response ends in time, and endless content is not read")
  func bounded() async throws {
    let origin = try ScriptedOrigin()
    origin.on("/silent", .silent)
    origin.on("/endless", .endless())
    let sender = try fetcher().sender(under: policy())
    #expect(
      await post(origin.url("/silent"), by: sender, within: 0.3) == .failure(.timeout(seconds: 0.3))
    )
    #expect(
      await post(origin.url("/endless"), by: sender) == .success(WebhookResponse(status: 200)))
    #expect(await origin.waitForClose(of: 2) != nil)
    #expect(origin.sentBytes(on: 2) < 64 << 20)
  }
}
