import HTTP
import HTTPTypes
import Jobs
import Synchronization
import Testing

@testable import API

@Suite("Streams under way when the tokens change")
struct StreamAccessTests {
  /// What may become of the token that asked.
  enum Change: CaseIterable {
    case none, limits, secret, owner, more, nothing

    var tokens: [Token] {
      var token = Token.of("web", [.jobs])
      switch self {
      case .none: break
      case .limits: token.limits.maxQueued = 1
      case .secret: token.digest = Token.of("new", []).digest
      case .owner: token.owner = Owner("other")
      case .more: token.scopes = [.jobs, .admin]
      case .nothing: token.scopes = []
      }
      return [.of("root", [.admin]), token]
    }

    var keepsStreams: Bool { self == .none || self == .limits }
  }

  private let web: HTTPFields = [.authorization: "Bearer web"]

  private func stream(
    _ path: String, of client: Client, _ fields: HTTPFields
  ) async throws -> any ContentStream {
    let query = path.hasSuffix("/results") ? "follow=true" : nil
    let request = Request(method: .get, path: path, query: query, fields: fields)
    guard case .stream(let stream) = await client.routes.respond(to: request).content else {
      throw JobsError.unknownJob
    }
    return stream
  }

  @Test(
    "end where their request would be refused now, or be another's; others go on",
    arguments: Change.allCases)
  func change(change: Change) async throws {
    let client = Client { $0.tokens = [.of("web", [.jobs])] }
    let id = try await client.submitted(#"{"url":"http://a/"}"#, web)
    var list = web
    list[.contentType] = "text/plain"
    let upload = await client.send(.post, "/batches", list, body: Array("http://a/".utf8))
    let batch = try #require(upload.json?["id"]?.string)
    var streams: [(path: String, stream: any ContentStream)] = []
    for path in [
      "/events", "/jobs/\(id)/events", "/batches/\(batch)/events", "/batches/\(batch)/results",
    ] { streams.append((path, try await stream(path, of: client, web))) }
    client.routes.replaceTokens(change.tokens)
    for (path, stream) in streams {
      let goesOn = stream.next() != .end
      #expect(goesOn == change.keepsStreams, "\(path)")
    }
  }

  private final class Count: Sendable {
    private let wakes = Atomic(0)
    var value: Int { wakes.load(ordering: .relaxed) }
    func up() { wakes.add(1, ordering: .relaxed) }
  }

  @Test("are woken to their end, however silent; others are not")
  func wakes() async throws {
    let client = Client { $0.tokens = [.of("web", [.jobs]), .of("other", [.jobs])] }
    let other: HTTPFields = [.authorization: "Bearer other"]
    let (ending, going) = (Count(), Count())
    let first = try await stream("/events", of: client, web)
    first.attach { ending.up() }
    let second = try await stream("/events", of: client, other)
    second.attach { going.up() }
    _ = (first.atOnce, second.atOnce)
    client.routes.replaceTokens([.of("other", [.jobs])])
    #expect(ending.value == 1 && going.value == 0)
    let (last, next) = (first.next(), second.next())
    #expect(last == .end && next == .nothingYet)
  }

  @Test("of nobody by name go on until there are tokens")
  func anonymous() async throws {
    let client = Client()
    let stream = try await stream("/events", of: client, [:])
    _ = stream.atOnce
    client.routes.replaceTokens([])
    let before = stream.next()
    client.routes.replaceTokens([.of("web", [.jobs])])
    let after = stream.next()
    #expect(before == .nothingYet && after == .end)
  }

  @Test("end as they begin where the tokens changed between")
  func late() throws {
    let authentication = Authentication(tokens: [.of("web", [.jobs])])
    let identity = try #require(authentication.identify(web))
    authentication.replace([.of("other", [.jobs])])
    let stream = authentication.bind(EventStream(FakeListener([])), to: identity)
    let piece = stream.next()
    #expect(piece == .end)
  }
}
