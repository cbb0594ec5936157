import Digests
import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("Webhooks of a running service", .timeLimit(.minutes(15)))
struct WebhookRunTests {
  private static let secrets = [
    "whsec_" + Data((0..<32).map { UInt8($0) }).base64EncodedString(),
    "whsec_" + Data((0..<24).map { UInt8($0 + 100) }).base64EncodedString(),
  ]
  private static let keys = [
    "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true",
    "webhooks.allow_ports": "",
    "webhooks.secrets": secrets[0], "webhooks.retry": "20ms,20ms,20ms,20ms,20ms",
  ]

  /// A message that a receiver got.
  private struct Message: Decodable {
    struct Told: Decodable {
      var id, phase: String
    }
    var type, timestamp: String
    var data: Told

    init(_ request: ScriptedRequest) throws {
      self = try JSONDecoder().decode(Message.self, from: Data(request.content))
    }
  }

  private struct Shown: Decodable {
    struct Try: Decodable {
      var at: String
      var status: Int?
      var error: String?
      var ms: Int
    }
    var id, type, state: String
    var next_at: String?
    var tries: [Try]
    var earlier: [Shown]?
  }

  private static func shown(_ id: String, at service: RunningService) async throws -> Shown {
    let answer = try await service.get("/jobs/\(id)/webhooks")
    try #require(answer.status == 200, "\(String(decoding: answer.body, as: UTF8.self))")
    return try JSONDecoder().decode(Shown.self, from: answer.body)
  }

  private static func notify(_ url: String) -> [String: Any] { ["url": url] }

  @Test(
    "each end is reported, and the official library and Node verify its signatures"
  )
  func verified() async throws {
    var keys = Self.keys
    keys["webhooks.secrets"] = Self.secrets.joined(separator: ",")
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try await withPipeline(keys) { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg))
      origin.on("/hook", .status(204))
      let hook = Self.notify(origin.url("/hook?token=secret-of-the-receiver"))
      let success = try await service.run(["url": origin.url("/x"), "notify": hook])
      // The cache answers this job: the same transaction creates and finishes it.
      let answered = try await service.run(["url": origin.url("/x"), "notify": hook])
      let failure = try await service.run(["url": origin.url("/none"), "notify": hook])
      await origin.waitForRequests(to: "/hook", count: 3)
      let requests = origin.requests(to: "/hook")
      let told = try requests.map(Message.init)
      #expect(Set(told.map(\.data.id)) == [success.id, answered.id, failure.id])
      #expect(
        Set(told.map { "\($0.type) \($0.data.phase)" }) == [
          "job.success success", "job.failure failure",
        ])
      var files: [String] = []
      for (number, request) in requests.enumerated() {
        #expect(request.method == "POST" && request.header("content-type") == "application/json")
        #expect(
          request.target == "/hook?token=secret-of-the-receiver" && request.content.count <= 20_480)
        let fields = Dictionary(request.headers.map { ($0.name, $0.value) }) { first, _ in first }
        let message: [String: Any] = [
          "secrets": Self.secrets, "headers": fields,
          "body": String(decoding: request.content, as: UTF8.self),
        ]
        let file = "\(folder)/\(number).json"
        try JSONSerialization.data(withJSONObject: message).write(to: URL(filePath: file))
        files.append(file)
      }
      // The message contains the job as the API returns it.
      let job = try await service.get("/jobs/\(failure.id)").json() as NSDictionary
      let body = try #require(
        requests.first { (try? Message($0).data.id) == failure.id }.map { Data($0.content) })
      let said = try JSONSerialization.jsonObject(with: body) as? [String: Any]
      #expect(said?["data"] as? NSDictionary == job)
      let shown = try await Self.shown(failure.id, at: service)
      #expect(shown.state == "delivered" && shown.tries.map(\.status) == [204])
      #expect(
        !service.log.contains("secret-of-the-receiver"),
        "the log has no more of a URL than its host")
      #expect(service.log.contains("webhook delivered"))

      let root = URL(filePath: #filePath).pathComponents.dropLast(4).joined(separator: "/")
        .dropFirst()
      let names = files.joined(separator: " ")
      let output = try await Shell.run(
        """
        exec 2>&1; set -e; ROOT="\(root)"
        make --no-print-directory -C "$ROOT" .build-clients/installed
        "$ROOT/.build-clients/bin/python" "$ROOT/Tests/Clients/verify-webhooks.py" \(names)
        node "$ROOT/Tests/Clients/verify-webhooks.mjs" \(names)
        """, in: folder, within: 300)
      #expect(output.hasSuffix("verified\nverified\n"), "\(output)")
    }
  }

  @Test("a message that is not accepted is sent again with the same id until it is")
  func again() async throws {
    try await withPipeline(Self.keys) { service, origin in
      origin.on("/x", .ok(Fixtures.jpeg))
      origin.on(
        "/hook",
        inOrder: [.status(500), .redirect(to: origin.url("/elsewhere"), status: 307), .status(200)])
      let job = try await service.run([
        "url": origin.url("/x"), "notify": Self.notify(origin.url("/hook")),
      ])
      await origin.waitForRequests(to: "/hook", count: 3)
      try await eventually { try await Self.shown(job.id, at: service).state == "delivered" }
      var shown = try await Self.shown(job.id, at: service)
      #expect(shown.tries.map(\.status) == [500, 307, 200] && shown.next_at == nil)
      #expect(shown.tries.map { $0.error == nil } == [false, false, true])
      #expect(origin.requests(to: "/elsewhere").isEmpty, "no redirect is followed")

      let answer = try await service.send("POST", "/jobs/\(job.id)/webhooks/send")
      let state = try answer.json()["state"] as? String
      #expect(answer.status == 200 && state == "pending")
      await origin.waitForRequests(to: "/hook", count: 4)
      let requests = origin.requests(to: "/hook")
      #expect(Set(requests.map { $0.header("webhook-id") }) == [shown.id])
      #expect(Set(requests.map(\.content)).count == 1)
      try await eventually {
        shown = try await Self.shown(job.id, at: service)
        return shown.tries.count == 4
      }
      #expect(
        try await service.get("/jobs/00000000-0000-7000-8000-000000000000/webhooks").status == 404)
      let quiet = try await service.run(["url": origin.url("/x")])
      #expect(try await service.get("/jobs/\(quiet.id)/webhooks").status == 404)
    }
  }

  @Test("a message fails at 410 or after the last attempt, and Retry-After delays it")
  func givenUp() async throws {
    try await withPipeline(Self.keys) { service, origin in
      origin.on("/gone", .status(410))
      origin.on("/down", .status(503))
      origin.on("/later", .status(429, headers: [("Retry-After", "100")]))
      var ids: [String: String] = [:]
      for path in ["/gone", "/down", "/later"] {
        ids[path] = try await service.post(
          ["url": origin.url("/none"), "max_attempts": 1, "notify": Self.notify(origin.url(path))])
      }
      func shown(_ path: String) async throws -> Shown {
        try await Self.shown(ids[path] ?? "", at: service)
      }
      for (path, tries) in [("/gone", 1), ("/down", 6)] {
        try await service.wait(for: ids[path] ?? "") { $0.isFinished }
        try await eventually { try await shown(path).state == "failed" }
        #expect(try await shown(path).tries.count == tries)
        #expect(origin.requests(to: path).count == tries)
      }
      await origin.waitForRequests(to: "/later")
      try await eventually { try await shown("/later").tries.count == 1 }
      let later = try await shown("/later")
      let next = try Date(#require(later.next_at), strategy: Self.times)
      let sent = try Date(#require(later.tries.first?.at), strategy: Self.times)
      #expect(later.state == "pending" && 100...101 ~= next.timeIntervalSince(sent))
      // A purge deletes the waiting message.
      #expect(
        try await service.send("DELETE", "/jobs/\(ids["/later"] ?? "")?purge=true").status == 204)
      let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      #expect(metrics.contains("imagefetch_webhooks_waiting 0"))
      #expect(metrics.contains(#"imagefetch_webhooks_ended_total{state="failed"} 2"#), "\(metrics)")
    }
  }

  private static let times = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

  @Test("a receiver that hangs gets two messages at a time and delays no other receiver")
  func hanging() async throws {
    let other = try ScriptedOrigin(host: "127.0.0.2")
    defer { other.stop() }
    other.on("/hook", .status(200))
    // No attempt at the hanging receiver ends during this test.
    try await withPipeline(Self.keys.merging(["webhooks.timeout": "10m"]) { $1 }) {
      service, origin in
      origin.on("/hang", .silent)
      let hanging = (0..<30).map { number -> [String: Any] in
        ["url": origin.url("/none\(number)"), "notify": Self.notify(origin.url("/hang"))]
      }
      _ = try await service.outcomes(service.post(batch: hanging))
      await origin.waitForRequests(to: "/hang", count: 2)
      let others = (0..<20).map { number -> [String: Any] in
        ["url": origin.url("/none\(number)"), "notify": Self.notify(other.url("/hook"))]
      }
      _ = try await service.outcomes(service.post(batch: others))
      #expect(await other.waitForRequests(to: "/hook", count: 20))
      #expect(origin.requests(to: "/hang").count == 2 && other.mostAtOnce(to: "/hook") <= 2)
    }
  }

  @Test("an owner's last receiver gets its messages although its first ones are silent")
  func lastHost() async throws {
    let receivers = try ScriptedOrigin(host: "0.0.0.0")
    defer { receivers.stop() }
    receivers.on("/hang", .silent)
    receivers.on("/later", .status(503, headers: [("Retry-After", "600")]))
    receivers.on("/hook", .status(200))
    func hook(_ host: Int, _ path: String) -> [String: Any] {
      Self.notify("http://127.0.0.\(host):\(receivers.port)\(path)")
    }
    let keys = Self.keys.merging(["webhooks.timeout": "300ms"]) { $1 }.merging(twoOwners) { $1 }
    try await withPipeline(keys) { service, origin async throws in
      func submit(_ jobs: [[String: Any]], by owner: [String: String]) async throws {
        let answer = try await service.send(
          "POST", "/jobs", headers: owner.merging(["Content-Type": "application/json"]) { $1 },
          body: JSONSerialization.data(withJSONObject: jobs))
        try #require(answer.status == 202)
      }
      // Another owner's messages wait, too. A single owner would not have to share.
      try await submit([["url": origin.url("/no"), "notify": hook(200, "/later")]], by: bert)
      #expect(await receivers.waitForRequests(to: "/later", count: 1))
      // Each message is tried six times, so the first receivers always have more.
      try await submit(
        (0..<300).map { number in
          ["url": origin.url("/no\(number)"), "notify": hook(100 + number % 20, "/hang")]
        }, by: anna)
      #expect(await receivers.waitForRequests(to: "/hang", count: 32))
      let last: [String: Any] = ["url": origin.url("/no"), "notify": hook(199, "/hook")]
      _ = try await service.outcome(service.post(last, headers: anna), headers: anna)
      let before = receivers.requests(to: "/hang").count
      #expect(await receivers.waitForRequests(to: "/hook", count: 1))
      // One round is forty messages.
      #expect(receivers.requests(to: "/hang").count - before < 300)
    }
  }

  @Test("messages are sent only to addresses that webhooks allow, whatever fetches allow")
  func guarded() async throws {
    var keys = Self.keys
    keys["webhooks.allow_networks"] = ""
    keys["webhooks.retry"] = ""
    try await withPipeline(keys) { service, origin in
      let connections = origin.acceptedConnections
      for (url, host) in [
        (origin.url("/hook"), "127.0.0.1"),
        ("http://localhost:\(origin.port)/hook", "localhost"),
        ("http://169.254.169.254/latest", "169.254.169.254"), ("http://[::1]/", "::1"),
      ] {
        let job = try await service.post([
          "url": "http://169.254.169.254/x", "notify": Self.notify(url),
        ])
        _ = try await service.outcome(job)
        try await eventually { try await Self.shown(job, at: service).state == "failed" }
        let told = try await Self.shown(job, at: service).tries
        let words = "\(host) has an address that this service may not send to."
        #expect(told.map(\.error) == [words])
      }
      // Only the operator may learn which internal address a name has.
      try await eventually {
        service.log.contains(#/localhost: [0-9a-f.:]+ is in the blocked network Loopback/#)
      }
      #expect(origin.acceptedConnections == connections)
    }
    keys["webhooks.allow_networks"] = "127.0.0.1/32"
    keys["webhooks.allow_hosts"] = "*.example"
    try await withPipeline(keys) { service, origin in
      let job = try await service.post([
        "url": "http://169.254.169.254/x", "notify": Self.notify(origin.url("/hook")),
      ])
      _ = try await service.outcome(job)
      try await eventually { try await Self.shown(job, at: service).state == "failed" }
      #expect(
        try await Self.shown(job, at: service).tries[0].error
          == "127.0.0.1 is a host that this service may not send to.")
    }
    keys["webhooks.allow_hosts"] = ""
    keys["webhooks.allow_ports"] = "443"
    try await withPipeline(keys) { service, origin in
      let job = try await service.post([
        "url": "http://169.254.169.254/x", "notify": Self.notify(origin.url("/hook")),
      ])
      _ = try await service.outcome(job)
      try await eventually { try await Self.shown(job, at: service).state == "failed" }
      let error = try await Self.shown(job, at: service).tries[0].error
      #expect(error?.contains("port \(origin.port)") == true)
    }
  }

  @Test("by default messages are sent over https only")
  func plain() async throws {
    try await withPipeline(["webhooks.allow_networks": "127.0.0.1/32"]) { service, origin in
      let refused = try await service.submit(
        ["url": origin.url("/x"), "notify": Self.notify(origin.url("/hook"))])
      #expect(refused.status == 422)
    }
  }

  @Test("a token's messages are signed with its own secrets")
  func tokens() async throws {
    var keys = Self.keys
    let token = "t0ken"
    let digest = SHA256.hash(data: Data(token.utf8)).map { String(format: "%02x", $0) }.joined()
    keys["auth.tokens"] = """
      [{name: web, sha256: "\(digest)", scopes: [jobs], webhook_secrets: ["\(Self.secrets[1])"]}]
      """
    try await withPipeline(keys) { service, origin in
      origin.on("/hook", .status(200))
      _ = try await service.run(
        ["url": origin.url("/none"), "notify": Self.notify(origin.url("/hook"))],
        headers: ["Authorization": "Bearer \(token)"])
      await origin.waitForRequests(to: "/hook")
      let request = origin.requests(to: "/hook")[0]
      let signature = try #require(request.header("webhook-signature"))
      let (id, moment) = (
        request.header("webhook-id") ?? "", request.header("webhook-timestamp") ?? ""
      )
      let expected = Self.signature(
        Array("\(id).\(moment).".utf8) + request.content, Self.secrets[1])
      #expect(signature == expected)
    }
  }

  private final class Receiver: Sendable { let isUp = Atomic(false) }

  /// The service is killed twice, and 50 times with `LONG_TESTS`.
  private static let kills = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 50 : 2

  @Test("kill -9 loses no message, and repeated messages keep their ids", .timeLimit(.minutes(30)))
  func killed() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    var keys = Self.keys
    keys["webhooks.retry"] = (0..<100).map { _ in "50ms" }.joined(separator: ",")
    let settings = environment(keys)
    let receiver = Receiver()
    origin.on("/hook") { _ in .status(receiver.isUp.load(ordering: .relaxed) ? 200 : 500) }
    var all: Set<String> = []
    for _ in 0..<Self.kills {
      let service = try await RunningService(folder: folder, settings: settings)
      let jobs = (0..<10).map { number -> [String: Any] in
        [
          "url": origin.url("/none"), "cache_key": UUID().uuidString, "max_attempts": 1,
          "notify": Self.notify(origin.url("/hook")),
        ]
      }
      let ids = try await service.post(batch: jobs)
      all.formUnion(ids)
      // Some jobs have ended by then, and some of their messages were tried.
      try await eventually {
        try await service.job(ids[Int.random(in: 0..<10)]).isFinished
      }
      try await service.kill()
    }
    receiver.isUp.store(true, ordering: .relaxed)
    let service = try await RunningService(folder: folder, settings: settings)
    for id in all {
      _ = try await service.outcome(id)
      try await eventually { try await Self.shown(id, at: service).state == "delivered" }
    }
    var names: [String: Set<String>] = [:]
    for request in origin.requests(to: "/hook") {
      let id = try Message(request).data.id
      names[id, default: []].insert(request.header("webhook-id") ?? "")
    }
    #expect(Set(names.keys) == all && names.values.allSatisfy { $0.count == 1 })
    #expect(try await service.stop() == 0)
  }

  private static func signature(_ text: [UInt8], _ secret: String) -> String {
    let key = Data(base64Encoded: String(secret.dropFirst(6))) ?? Data()
    let code = HMACSHA256.authenticationCode(for: text, key: key)
    return "v1," + Data(code).base64EncodedString()
  }
}
