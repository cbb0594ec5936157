import FoundationEssentials
import HTTP
import HTTPTypes
import Jobs
import Testing

@testable import API

@Suite("Server-sent events")
struct EventTests {
  let client = Client()

  @Test("an event has the job in one line and its version as the id, under each name")
  func format() async throws {
    let id = try await client.submitted(#"{"url":"http://a/","tags":["x"]}"#)
    let answer = await client.get("/jobs/\(id)/events")
    #expect(answer.status == 200)
    #expect(answer.fields[.contentType] == "text/event-stream")
    #expect(answer.fields[.cacheControl] == "no-store")
    #expect(answer.fields[.xAccelBuffering] == "no")
    let document = await client.get("/jobs/\(id)").text
    #expect(
      answer.text
        == ["phase", "image"].map { "event: \($0)\nid: 1\ndata: \(document)\n\n" }.joined()
    )
    #expect(answer.text.contains(#""events":"/jobs/\#(id)/events""#))
  }

  @Test("events of a running job are encoded once for all streams, events of a queued job for each")
  func encodedOnce() throws {
    let url = try #require(SourceURL("http://a/"))
    var job = Job(
      id: JobID(high: 1, low: 1), owner: .anonymous,
      submission: Submission(source: .url(url, lowData: nil)), priority: .normal, tags: [],
      createdAt: Timestamp(milliseconds: 0))
    job.start(at: job.createdAt)
    let snapshot = JobSnapshot(job)
    func bytes(_ events: [JobEvent], _ waiting: WaitingFor? = nil) throws -> [UInt8] {
      let stream = EventStream(FakeListener([.job(snapshot, events)])) { _ in waiting }
      guard case .bytes(let bytes) = stream.next() else { throw JobsError.unknownJob }
      return bytes
    }
    func address(_ bytes: [UInt8]) -> UnsafeRawPointer? {
      bytes.withUnsafeBytes { $0.baseAddress }
    }
    let first = try bytes([.progress])
    let second = try bytes([.progress])
    #expect(first == second && address(first) == address(second), "the same memory")
    let phase = try bytes([.phase])
    #expect(String(decoding: phase, as: UTF8.self).hasPrefix("event: phase\n"))
    let waiting = try bytes([.phase], WaitingFor(.originLimit, origin: nil))
    #expect(waiting != phase)
    #expect(try bytes([.phase]) == phase)
  }

  @Test("an event stream has a comment at least every 15 s")
  func comment() throws {
    let keepAlive = try #require(EventStream(nil).keepAlive)
    #expect(keepAlive.bytes.first == UInt8(ascii: ":") && keepAlive.bytes.suffix(2) == [10, 10])
    // The server may send it a second late.
    #expect(keepAlive.interval + .seconds(1) <= .seconds(15))
  }

  @Test("an event stream begins with the events after the client's Last-Event-ID")
  func lastEventID() async throws {
    let id = try await client.submitted()
    for field in ["", "x", "+1", "at-", "at-x", "99999999999999999999", "\u{0}"] {
      #expect(await client.get("/jobs/\(id)/events", [.lastEventID: field]).status == 200)
    }
    _ = await client.get("/jobs/\(id)/events", [.lastEventID: "1"])
    _ = await client.get("/jobs/\(id)/events?cancel_on_disconnect=true")
    let asked = client.service.with { $0.listening }
    #expect(asked.dropLast(2).allSatisfy { $0 == .one(id, seen: nil, cancels: false) })
    #expect(
      asked.suffix(2) == [.one(id, seen: 1, cancels: false), .one(id, seen: nil, cancels: true)])
  }

  @Test("a client that has the final event of a job gets 204")
  func heardOfTheEnd() async throws {
    let id = try await client.succeeded()
    let version = try #require(client.service.peek(id, for: .everyone)?.job.version)
    #expect(await client.get("/jobs/\(id)/events", [.lastEventID: "\(version)"]).status == 204)
    #expect(await client.get("/jobs/\(id)/events", [.lastEventID: "\(version - 1)"]).status == 200)
  }

  @Test("HEAD of an event stream subscribes to nothing")
  func head() async throws {
    let id = try await client.submitted()
    for path in ["/jobs/\(id)/events", "/events"] {
      let answer = await client.send(.head, path)
      #expect(answer.status == 200)
      #expect(answer.fields[.contentType] == "text/event-stream")
      #expect(answer.bytes.isEmpty)
    }
    #expect(client.service.with { $0.listening } == [])
  }

  @Test("events of another owner's job are 404, and a wrong query is 422")
  func refused() async throws {
    let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    #expect(await client.get("/jobs/\(unknown)/events").status == 404)
    #expect(await client.send(.post, "/events").status == 405)
    let id = try await client.submitted()
    for target in [
      "/jobs/\(id)/events?cancel_on_disconnect=yes", "/jobs/\(id)/events?phase=queued",
      "/events?phase=gone", "/events?cancel_on_disconnect=true", "/events?tag=a&tag=b",
    ] {
      #expect(await client.get(target).code == "invalid_option", "\(target)")
    }
    #expect(client.service.with { $0.listening } == [])
  }

  @Test("a stream of many jobs sends a time as its id after all pending events")
  func many() async throws {
    let id = try await client.submitted()
    let now = client.service.now().milliseconds
    let answer = await client.get("/events?phase=queued&phase=loading&tag=x")
    let document = await client.get("/jobs/\(id)").text
    #expect(answer.text == "event: phase\nid: 1\ndata: \(document)\n\nid: at-\(now)\n\n")
    _ = await client.get("/events", [.lastEventID: "at-\(now)"])
    _ = await client.get("/events", [.lastEventID: "7"])
    var first = SubscriptionQuery(caller: .everyone)
    first.phases = [.queued, .loading]
    first.tag = "x"
    var second = SubscriptionQuery(caller: .everyone)
    second.seenUntil = Timestamp(milliseconds: now)
    var third = SubscriptionQuery(caller: .everyone)
    third.seenUntil = Timestamp(milliseconds: 0)
    #expect(client.service.with { $0.listening } == [.many(first), .many(second), .many(third)])
  }
}

extension Caller {
  /// The caller if there are no tokens.
  static let everyone = Caller(owner: .anonymous, isAdmin: true)
}
