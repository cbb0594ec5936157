import API
import FoundationEssentials
import HTTP
import HTTPTypes
import Jobs
import TestSupport
import Testing

/// Checks streams of lines and of events.
extension OpenAPITests {
  @Test("openapi.yaml describes batches, their results and their events completely")
  func describesBatches() async throws {
    let client = Client()
    let list = [
      #"{"url":"http://a/1"}"#, #"{"url":"http://a/2"}"#, #"{"url":"http://a/3"}"#,
      #"{"url":"http://a/4"}"#, #"{"url":"http://a/5"}"#, #"{"url":"http://a/6"}"#, "nothing",
      #"{"tags":[]}"#, #""nowhere""#, "[]", #"{"url":"http://a/","priority":"urgent"}"#,
      #"{"local":"/x"}"#,
    ]
    let begun = await client.send(
      .post, "/batches?name=a&tag=b", [.contentType: "application/x-ndjson"],
      body: Array(list.joined(separator: "\n").utf8))
    let id = try #require(begun.json?["id"]?.string)
    let lineSchema = try item("post", "/batches", "application/x-ndjson")
    for line in list[..<6] + list[8..<9] {
      let json = try JSONDecoder().decode(JSON.self, from: Data(line.utf8))
      #expect(checker.mistakes(in: json, schema: lineSchema) == [], "\(line)")
    }

    let jobs = client.service.with { Array($0.jobs.keys) }.sorted()
    try #require(jobs.count == 6)
    let image = try await StoredImage.of([1], url: #require(SourceURL("http://a/1")))
    let changes: [@Sendable (inout Job) -> Void] = [
      {
        $0.succeed(with: image, cache: CacheOutcome(.miss), at: $0.createdAt, keptFor: .seconds(9))
      },
      { $0.fail(.fetch(.timeout(seconds: 1)), at: $0.createdAt, keptFor: .seconds(9)) },
      {
        $0.fail(
          .fetch(.blocked(target: "10.0.0.1", .address("10.0.0.1", name: "Private-Use"))),
          at: $0.createdAt, keptFor: .seconds(9))
      },
      {
        $0.fail(.fetch(.originStatus(404, retryAfter: nil)), at: $0.createdAt, keptFor: .seconds(9))
      },
      { _ = $0.cancel(at: $0.createdAt, keptFor: .seconds(9)) },
    ]
    // In each state of the batch.
    let batchSchema = try #require(checker.document["components"]?["schemas"]?["Batch"])
    for (job, change) in zip(jobs, changes) {
      _ = try await client.service.batchStore.update(job, under: nil) { job in
        job.start(at: job.createdAt)
        change(&job)
        return true
      }
      let batch = try #require(await client.get("/batches/\(id)").json)
      #expect(checker.mistakes(in: batch, schema: batchSchema) == [])
    }
    _ = await client.send(.delete, "/batches/\(id)")
    _ = try await client.service.batchStore.endStopped(10, keptFor: .seconds(9))

    let reference = try item("get", "/batches/{id}/results", "application/x-ndjson", "200")
    let resultSchema = try #require(checker.resolve(reference))
    let results = await client.lines("/batches/\(id)/results?follow=true")
    #expect(results.count == list.count)
    for line in results { #expect(checker.mistakes(in: line, schema: resultSchema) == []) }
    let said = Set(results.compactMap { $0["error"]?["code"]?.string })
    #expect(said.count == 8, "\(said)")
    let known = Set(FailureCode.allCases.map(\.rawValue))
    let words = try #require(resultSchema["properties"]?["error"]?["description"]?.string)
    for code in said.subtracting(known) {
      #expect(words.contains("`\(code)`"), "\(code) is not described")
    }

    let eventSchema = try item("get", "/batches/{id}/events", "text/event-stream", "200")
    let events = Client.events(in: await client.streamed("/batches/\(id)/events"))
    #expect(!events.isEmpty)
    for event in events { #expect(checker.mistakes(in: event, schema: eventSchema) == []) }
  }

  @Test("openapi.yaml describes the events of jobs")
  func describesEvents() async throws {
    let client = Client()
    let done = try await client.succeeded()
    let schema = try item("get", "/jobs/{id}/events", "text/event-stream", "200")
    let events = Client.events(in: await client.get("/jobs/\(done)/events").bytes)
    #expect(!events.isEmpty)
    for event in events { #expect(checker.mistakes(in: event, schema: schema) == []) }
  }

  /// The schema of one item of a stream.
  private func item(
    _ method: String, _ path: String, _ type: String, _ status: String? = nil
  ) throws -> JSON {
    let operation = paths[path]?[method]
    let place =
      status.map { checker.resolve(operation?["responses"]?[$0]) } ?? operation?["requestBody"]
    return try #require(place?["content"]?[type]?["x-itemSchema"], "\(path) \(type)")
  }
}
