import API
import HTTPTypes
import Jobs
import Testing

@Suite("If-Match")
struct PreconditionTests {
  let client = Client()
  private static let unknown = "/jobs/0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"

  /// Conditional requests for a job with version 1.
  private static let changes: [(HTTPRequest.Method, String, String, Int)] = [
    (.patch, "", #"{"priority":"high"}"#, 200), (.delete, "", "", 200),
    (.delete, "?purge=true", "", 204), (.post, "/fetch", "", 200),
  ]

  private func send(
    _ change: (HTTPRequest.Method, String, String, Int), to job: String, _ condition: String
  ) async -> Answer {
    var fields: HTTPFields = [.ifMatch: condition]
    if change.0 == .patch { fields[.contentType] = "application/json" }
    return await client.send(change.0, job + change.1, fields, body: Array(change.2.utf8))
  }

  @Test(
    "If-Match with the job's version allows the change",
    arguments: ["\"1\"", "*", "\"7\", \"1\"", "W/\"1\",\"1\"", "\"a,b\" , \"1\""])
  func holds(condition: String) async throws {
    for change in Self.changes {
      let id = try await client.submitted()
      #expect(await send(change, to: "/jobs/\(id)", condition).status == change.3, "\(change)")
    }
  }

  @Test(
    "If-Match with another version is 412, and nothing is changed",
    arguments: [
      "\"1048577\"", "\"-9223372036854775808\"", "W/\"1\"", "\"1048577\", W/\"1\"", "1", "",
      "\"*\"", "\"01\"", "\"1", "\"1048577\", *",
    ])
  func fails(condition: String) async throws {
    for change in Self.changes {
      let id = try await client.submitted()
      let before = client.service.with { $0.jobs[id] }
      let answer = await send(change, to: "/jobs/\(id)", condition)
      #expect(answer.status == 412, "\(change)")
      #expect(answer.code == "precondition_failed")
      #expect(client.service.with { $0.jobs[id] } == before)
    }
  }

  @Test("If-Match with a version before mere progress allows the change")
  func progress() async throws {
    for change in Self.changes {
      let id = try await client.submitted()
      client.service.change(id) { job in
        job.start(at: job.createdAt)
        for _ in 0..<3 { job.applyReport(ProgressReport(of: job)) }
      }
      let version = try #require(client.service.with { $0.jobs[id]?.version })
      #expect(await send(change, to: "/jobs/\(id)", "\"\(version - 2)\"").status == change.3)
      let other = try await client.submitted()
      #expect(await send(change, to: "/jobs/\(other)", "\"\(version)\"").status == 412)
    }
  }

  @Test("If-Match is checked at the moment of the change")
  func holdsAtTheChange() async throws {
    client.service.with { kept in kept.meanwhile = { _ = $0.edit(priority: nil, tags: ["new"]) } }
    for change in Self.changes.dropLast() {
      let id = try await client.submitted()
      #expect(await send(change, to: "/jobs/\(id)", "\"1\"").status == 412, "\(change)")
      #expect(client.service.with { $0.jobs[id]?.tags } == ["new"])
      let any = try await client.submitted()
      #expect(await send(change, to: "/jobs/\(any)", "*").status == change.3, "\(change)")
    }
  }

  @Test(
    "If-Match does not hide an error that the request has without it", arguments: ["*", "\"1\""])
  func isIgnored(condition: String) async throws {
    for change in Self.changes {
      #expect(await send(change, to: Self.unknown, condition).status == 404, "\(change)")
    }
    let id = try await client.submitted()
    let patch: HTTPFields = [.ifMatch: "\"9\"", .contentType: "text/plain"]
    #expect(await client.send(.patch, "/jobs/\(id)", patch).status == 415)
    #expect(await client.send(.delete, "/jobs/\(id)?x=1", [.ifMatch: "\"9\""]).status == 422)
  }
}
