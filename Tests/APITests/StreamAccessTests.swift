import HTTP
import HTTPTypes
import Jobs
import Synchronization
import Testing

@testable import API

@Suite("Streams under way when the tokens change")
struct StreamAccessTests {
  /// The changes that may happen to the request's token.
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
    "a stream ends when its token is removed or changes its owner; result streams break off, others continue",
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
      let piece = stream.next()
      // The regular end of results would mean that they are complete.
      let (last, never): (StreamPiece, StreamPiece) =
        path.hasSuffix("/results") ? (.failed, .end) : (.end, .failed)
      #expect((piece != last) == change.keepsStreams, "\(path)")
      #expect(piece != never, "\(path)")
    }
  }

  private final class Count: Sendable {
    private let wakes = Atomic(0)
    var value: Int { wakes.load(ordering: .relaxed) }
    func up() { wakes.add(1, ordering: .relaxed) }
  }

  @Test(
    "an upload ends when its token is removed; its lines stay, and another token of the owner continues it",
    arguments: Change.allCases)
  func upload(change: Change) async throws {
    var spare = Token.of("spare", [.jobs])
    spare.owner = Owner("web")
    let (before, after) = ([Token.of("web", [.jobs]), spare], change.tokens + [spare])
    let client = Client { $0.tokens = before }
    let asked = Count()
    let body = RequestBody(declaredLength: nil) { () throws(BodyError) in
      asked.up()
      guard asked.value <= 3 else { return nil }
      if asked.value == 2 { client.routes.replaceTokens(after) }
      return Array("http://a/\(asked.value)\n".utf8)
    }
    var list = web
    list[.contentType] = "text/plain"
    let request = Request(method: .post, path: "/batches", fields: list, body: body)
    let answer = Answer(await client.routes.respond(to: request))
    let going = change.keepsStreams
    #expect(answer.status == (going ? 202 : 401), "\(answer.text)")
    #expect(asked.value == (going ? 4 : 2))
    list[.authorization] = "Bearer spare"
    let batch = await client.get("/batches", list).json?["batches"]?[0]
    #expect(batch?["received"] == .number(going ? 3 : 1))
    guard !going else { return }
    #expect(answer.code == "unauthorized")
    #expect(answer.fields[.wwwAuthenticate]?.contains("invalid_token") == true)
    let lines = try #require(batch?["links"]?["self"]?.string) + "/lines?from=1"
    let more = await client.send(.post, lines, list, body: Array("http://a/2".utf8))
    #expect(more.status == 202 && more.json?["received"] == .number(2), "\(more.text)")
  }

  @Test("a silent stream is woken when its token is removed; others are not")
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

  @Test("streams without tokens continue until there are tokens")
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

  @Test("a stream ends at its start if the tokens changed after its request was accepted")
  func late() throws {
    let authentication = Authentication(tokens: [.of("web", [.jobs])])
    let identity = try #require(authentication.identify(web))
    authentication.replace([.of("other", [.jobs])])
    let stream = authentication.bind(EventStream(FakeListener([])), to: identity)
    let piece = stream.next()
    #expect(piece == .end)
  }
}
