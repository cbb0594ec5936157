import Executors
import Foundation
import HTTP
import HTTPTypes
import Jobs
import Logging
import Synchronization
import TestSupport
import Testing

@testable import API
@testable import App
@testable import Engine

/// The whole service with a real store, but without sockets and origins.
@Suite("A submission to a full queue", .timeLimit(.minutes(15)))
struct FullQueueRunTests {
  enum Keeping: CaseIterable { case sqlite, postgres }

  private struct Desk {
    let routes: Routes
    let calls: Calls

    var asked: Int { calls.all["submit"] ?? 0 }

    /// Sends a request and returns the response without values that change each time.
    func send(
      _ method: HTTPRequest.Method, _ path: String, _ text: String = "",
      _ fields: HTTPFields = [.contentType: "application/json"]
    ) async -> (response: Response, text: String) {
      let content = Mutex<[UInt8]?>(Array(text.utf8))
      var fields = fields
      fields[.xRequestID] = "mine"
      fields[.hostField] = "localhost"
      let body = RequestBody(declaredLength: text.utf8.count) { () throws(BodyError) in
        content.withLock { $0.take() }
      }
      let response = await routes.respond(
        to: Request(method: method, path: path, fields: fields, body: body))
      guard case .bytes(let bytes) = response.content else { return (response, "") }
      return (response, String(decoding: bytes, as: UTF8.self))
    }

    func post(
      _ name: String, key: String? = nil
    ) async -> (response: Response, text: String) {
      var fields: HTTPFields = [.contentType: "application/json"]
      if let key { fields[.idempotencyKey] = key }
      return await send(
        .post, "/jobs", #"{"url": "http://silent.example/\#(name)", "cache": "no-store"}"#, fields)
    }

    /// - Returns: The path of the accepted job.
    func accepted(_ name: String, key: String? = nil) async throws -> String {
      let answer = await post(name, key: key).response
      try #require(answer.status == .accepted)
      return try #require(answer.fields[.location])
    }
  }

  private func open(_ keeping: Keeping, _ body: (Desk) async throws -> Void) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    var configuration = App.Configuration()
    configuration.storage.path = folder
    configuration.engine.workers = 1
    configuration.engine.maxQueued = 2
    if keeping == .postgres {
      let name = "full_" + UUID().uuidString.filter { $0 != "-" }.lowercased()
      _ = try PostgresServer.shared.run("CREATE DATABASE \(name)")
      configuration.storage.jobs = try PostgresServer.shared.url(of: name)
    }
    let kept = try ConfiguredJobStore(configuration, isDurable: false)
    let calls = Calls()
    let images = MemoryImageStore()
    let fetcher = ScriptedFetcher()
    for name in ["busy", "a", "b", "c", "d"] {
      fetcher.answer("http://silent.example/\(name)", with: .hangs(after: Array("ok".utf8)))
    }
    let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    var engineConfiguration = configuration.engineConfiguration
    engineConfiguration.refusalDuration = .seconds(3_600)
    let engine = JobEngine(
      engineConfiguration,
      JobEngine.Parts(
        store: CountingJobStore(store: kept.store, calls: calls), images: images,
        spool: images.spool, fetcher: fetcher, codec: FakeCodec(), renderer: nil,
        threads: ThreadPool(name: "decode", threads: 1)),
      now: { .wallClock }, log: log)
    let routes = Routes(
      service: engine, configuration: configuration.routesConfiguration, openAPI: [],
      openAPIJSON: { [] }, dashboard: { WebPage([], contentSecurityPolicy: "") },
      metrics: { "" }, activity: { Activity(end: .wallClock) }, log: log)
    async let running: Void = engine.run()
    let outcome: Result<Void, any Error>
    do {
      try await eventually { engine.state == .ready }
      let desk = Desk(routes: routes, calls: calls)
      let busy = try await desk.accepted("busy")
      try await eventually { await desk.send(.get, busy).text.contains(#""phase":"loading""#) }
      outcome = .success(try await body(desk))
    } catch {
      outcome = .failure(error)
    }
    await engine.drain(within: .zero)
    try await running
    await kept.close()
    try outcome.get()
  }

  @Test(
    "a full queue gives the same answer from the store and from memory; mistakes come first",
    arguments: Keeping.allCases)
  func answers(keeping: Keeping) async throws {
    try await open(keeping) { desk in
      let first = try await desk.accepted("a", key: "k")
      _ = try await desk.accepted("b")
      let asked = desk.asked
      let refusal = await desk.post("c")
      #expect(desk.asked == asked + 1)
      #expect(refusal.response.status == .serviceUnavailable)
      #expect(refusal.response.fields[.retryAfter] == "5")
      #expect(refusal.response.fields[.contentType] == "application/problem+json")
      #expect(refusal.text.contains(#""code":"queue_full""#))
      for _ in 0..<5 {
        let again = await desk.post("c")
        #expect(again.response.status == refusal.response.status)
        #expect(again.response.fields == refusal.response.fields)
        #expect(again.text == refusal.text)
      }
      for (text, status) in [
        (#"{"url": "#, HTTPResponse.Status.badRequest), ("{}", .unprocessableContent),
        (#"{"url": "http://c.example/", "colour": 1}"#, .unprocessableContent),
      ] {
        #expect(await desk.send(.post, "/jobs", text).response.status == status)
      }
      #expect(
        await desk.send(.post, "/jobs", "x", [.contentType: "text/plain"]).response.status
          == .unsupportedMediaType)
      #expect(desk.asked == asked + 1)
      // A job accepted with a key is returned for the same key, even if the queue is full.
      #expect(try await desk.accepted("a", key: "k") == first)
    }
  }

  @Test(
    "a submission is accepted as soon as a job has left the queue", arguments: Keeping.allCases)
  func departure(keeping: Keeping) async throws {
    try await open(keeping) { desk in
      let first = try await desk.accepted("a")
      _ = try await desk.accepted("b")
      #expect(await desk.post("c").response.status == .serviceUnavailable)
      let asked = desk.asked
      #expect(await desk.post("c").response.status == .serviceUnavailable)
      #expect(await desk.send(.delete, first).response.status == .ok)
      _ = try await desk.accepted("c")
      for _ in 0..<3 { #expect(await desk.post("d").response.status == .serviceUnavailable) }
      #expect(desk.asked == asked + 1)
    }
  }
}
