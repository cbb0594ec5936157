import API
import Digests
import Foundation
import TestSupport
import Testing

@Suite("Secrets", .timeLimit(.minutes(15)))
struct SecretTests {
  @Test("a secret is found in a log or a response in every spelling, except by its owner")
  func watch() {
    let watch = SecretWatch()
    watch.plant(environment: [
      "IMAGEFETCH_WEBHOOKS_SECRETS": "whsec_YWJjZGVmZ2hpamtsbW5vcA==",
      "IMAGEFETCH_FETCH_PROXY": "http://me:proxy-pass-word@127.0.0.1:1",
    ])
    watch.plant(
      path: "/image?url=x&signature=view-signature-x",
      headers: ["Authorization": "Bearer client+token/1"],
      body: nil)
    watch.plant(
      path: "/jobs", headers: ["Content-Type": "application/json"],
      body: Data(
        """
        [{"url": "http://o/?token=a-source-token", "headers": {"Cookie": "id=cookie-of-origin"},
          "notify": {"url": "http://r/?secret=receivers-secret"},
          "deliver": [{"put": "http://s/?X-Amz-Signature=0123456789abcdef"}]}]
        """.utf8))
    #expect(watch.count == 8)
    func found(_ text: String, isAnswer: Bool = true) -> Int {
      watch.found(in: Data("…\(text)…".utf8), isAnswer: isAnswer).count
    }
    for text in [
      "whsec_YWJjZGVmZ2hpamtsbW5vcA==", "proxy-pass-word", "view-signature-x", "client+token/1",
      "client%2Btoken%2F1", "client+token\\/1", Data("client+token/1".utf8).base64EncodedString(),
      "cookie-of-origin", "receivers-secret", "0123456789ABCDEF",
    ] {
      #expect(found(text) == 1, "\(text)")
    }
    #expect(found("a-source-token") == 0 && found("a-source-token", isAnswer: false) == 1)
    #expect(found("Bearer id=cookie http://s/?X-Amz-Signature=") == 0)
  }

  private static let secrets = (
    token: "token-of-anna-0c1d2e", admin: "token-of-admin-7f8a9b", wrong: "token-of-nobody-3c4d",
    view: "7e1ef7e1ef7e1ef7e1ef7e1ef7e1ef7e1ef7e1ef",
    webhook: "whsec_c2lnbnMgdGhlIG1lc3NhZ2VzIDEyMzQ1Njc4",
    bucket: "a-bucket's-secret-which-is-wrong", header: "credential-for-the-origin"
  )

  private static func digest(_ token: String) -> String {
    SHA256.hash(data: Data(token.utf8)).map { String(format: "%02x", $0) }.joined()
  }

  private static func keys(in folder: String) async throws -> [String: String] {
    let bucket = try await TestBucket()
    let destinations = try bucket.destination(
      "shop", prefix: "in/", owners: ["anna", "root"], in: folder)
    try secrets.bucket.write(toFile: folder + "/secret", atomically: true, encoding: .utf8)
    return [
      "log.level": "debug", "view.enabled": "true", "view.keys": secrets.view,
      "webhooks.secrets": secrets.webhook, "webhooks.allow_networks": "127.0.0.0/8",
      "webhooks.allow_http": "true", "webhooks.allow_ports": "", "webhooks.retry": "20ms",
      "destinations": destinations,
      "auth.tokens": """
      [{name: anna, sha256: \(digest(secrets.token)), scopes: [jobs]}, \
      {name: root, sha256: \(digest(secrets.admin)), scopes: [jobs, admin]}]
      """,
    ]
  }

  /// The watch checks everything that is sent, returned and logged. This test makes the service produce all
  /// of it.
  @Test(
    "no secret is in a log, response or metric, and each end is one line with its ids"
  )
  func everywhere() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    Self.script(origin)
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = environment(try await Self.keys(in: folder))
    for (what, secret) in [
      ("a token", Self.secrets.token), ("an admin's token", Self.secrets.admin),
      ("a wrong token", Self.secrets.wrong), ("a view key", Self.secrets.view),
      ("a webhook secret", Self.secrets.webhook), ("a bucket's secret", Self.secrets.bucket),
      ("a job's header", Self.secrets.header),
    ] {
      SecretWatch.shared.plant(secret, what)
    }
    let by = ["Authorization": "Bearer \(Self.secrets.token)"]
    let service = try await RunningService(folder: folder, settings: settings)
    let ids = try await service.post(batch: Self.jobs(origin), by: by)
    var phases: [String: Int] = [:]
    for id in ids {
      let job = try await service.outcome(id, headers: by)
      phases[job.phase, default: 0] += 1
      try await eventually {
        let told = try await service.get("/jobs/\(id)/webhooks", headers: by).body
        return !String(decoding: told, as: UTF8.self).contains("\"pending\"")
      }
      for path in ["", "/events", "/image", "/image?width=10", "/preview"] {
        _ = try await service.get("/jobs/\(id)\(path)", headers: by)
      }
    }
    #expect(phases["success"] ?? 0 >= 3 && phases["failure"] ?? 0 >= 8, "\(phases)")
    let batch = try await Self.uploadBatch(to: service, origin, by: by)
    for path in ["/jobs?limit=500", "/batches", "/batches/\(batch)", "/batches/\(batch)/results"] {
      #expect(try await service.get(path, headers: by).status == 200, "\(path)")
    }
    try await Self.askWrongly(service, origin)
    let admin = ["Authorization": "Bearer \(Self.secrets.admin)"]
    for path in ["/metrics", "/cache", "/instances", "/jobs?limit=500", "/activity"] {
      _ = try await service.get(path, headers: admin)
    }
    #expect(try await service.get("/metrics", headers: admin).status == 200)
    #expect(try await service.stop() == 0)
    Self.expectOneLine(for: ids, batch: batch, in: service.log)
    let isTold = service.log.contains(#""level":"debug""#) && service.log.contains("shop")
    #expect(isTold, "the log has many lines")
    let sent = origin.requests(to: "/echo").compactMap { $0.header("authorization") }
    #expect(sent.contains { $0.contains(Self.secrets.header) }, "the secret was used")
  }

  private static func script(_ origin: ScriptedOrigin) {
    origin.on("/x", .ok(Fixtures.jpeg))
    origin.on("/put", .status(200))
    origin.on("/refused", .status(403))
    origin.on("/hook", .status(204))
    origin.on("/hook-refused", .status(400))
    // This path repeats the credentials that it received.
    origin.on("/echo") { request in
      .redirect(
        to:
          "http://10.9.8.7/?token=\(request.header("authorization")?.split(separator: " ").last ?? "")"
      )
    }
    origin.on("/userinfo", .redirect(to: "http://user:\(secrets.header)@127.0.0.1/"))
    origin.on("/nowhere", .redirect(to: "ftp://x/?token=\(secrets.header)"))
  }

  private static func jobs(_ origin: ScriptedOrigin) -> [[String: Any]] {
    let headers = ["Authorization": "Bearer \(secrets.header)", "Cookie": "id=\(secrets.header)"]
    let query = "?X-Amz-Signature=0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    let unreachable = "http://127.0.0.1:1/hook"
    var jobs: [[String: Any]] = [
      "/x", "/echo", "/userinfo", "/nowhere", "/none", "/x?api_key=credential-in-a-query",
    ].map { ["url": origin.url($0), "headers": headers] }
    jobs += [origin.url("/put"), origin.url("/refused"), unreachable, "http://10.9.8.7/"].map {
      ["url": origin.url("/x"), "deliver": [["put": $0 + query]]]
    }
    jobs += [["url": origin.url("/x"), "deliver": [["to": "shop"]]]]
    let hooks = [origin.url("/hook"), origin.url("/hook-refused"), unreachable, "http://10.9.8.7/"]
    jobs += hooks.map {
      ["url": origin.url("/x"), "notify": ["url": $0 + "?token=secret-of-the-receiver"]]
    }
    jobs += [
      ["url": "http://127.0.0.1:1/?token=token-of-the-source", "headers": headers],
      ["url": "http://no-such-host.invalid/?token=token-of-the-source", "headers": headers],
    ]
    // No job waits for a paused origin.
    return jobs.map { $0.merging(["max_attempts": 1, "cache": "reload"]) { $1 } }
  }

  private static func uploadBatch(
    to service: RunningService, _ origin: ScriptedOrigin, by fields: [String: String]
  ) async throws -> String {
    let lines =
      jobs(origin).prefix(3).compactMap { try? JSONSerialization.data(withJSONObject: $0) }
      .map { String(decoding: $0, as: UTF8.self) + "\n" }.joined()
      + "{\"url\": 7, \"headers\": {\"Cookie\": \"\(secrets.header)\"}}\n"
    let answer = try await service.send(
      "POST", "/batches", headers: fields.merging(["Content-Type": "application/x-ndjson"]) { $1 },
      body: Data(lines.utf8))
    let id = try #require(try answer.json()["id"] as? String)
    try await eventually {
      let batch = try await service.get("/batches/\(id)?wait=10", headers: fields).json()
      return batch["state"] as? String == "finished"
    }
    return id
  }

  private static func askWrongly(_ service: RunningService, _ origin: ScriptedOrigin) async throws {
    for token in [secrets.wrong, String(secrets.token.dropLast()), ""] {
      let answer = try await service.get("/jobs", headers: ["Authorization": "Bearer \(token)"])
      #expect(answer.status == 401)
    }
    let query = "url=\(origin.url("/x"))"
    let code = HMACSHA256.authenticationCode(
      for: "/image?\(query)&expires=4102444800".utf8,
      key: stride(from: 0, to: secrets.view.count, by: 2).map { at in
        let start = secrets.view.index(secrets.view.startIndex, offsetBy: at)
        return UInt8(secrets.view[start...].prefix(2), radix: 16)!  // the key is hexadecimal
      })
    let signature = Data(code).base64EncodedString().replacing("+", with: "-")
      .replacing("/", with: "_").replacing("=", with: "")
    for (said, status) in [(signature, 200), (String(signature.reversed()), 403)] {
      let answer = try await service.get("/image?\(query)&expires=4102444800&signature=\(said)")
      #expect(answer.status == status)
    }
  }

  private static func expectOneLine(for ids: [String], batch: String, in log: String) {
    let ends = log.split(separator: "\n").compactMap { line in
      try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
    }.filter { $0["message"] as? String == "job finished" }
    for id in ids {
      let own = ends.filter { $0["job"] as? String == id }
      #expect(own.count == 1 && own.first?["owner"] as? String == "anna", "\(id)")
    }
    let lines = ends.filter { $0["batch"] as? String == batch }.map { "\($0["line"] ?? "")" }
    #expect(lines.sorted() == ["1", "2", "3"])
  }

  @Test("an error at the start does not contain a rejected secret of a database, proxy or bucket")
  func refusedAtStart() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let bucket = try await TestBucket(prefix: "kept")
    let password = "password-of-the-database"
    try password.write(toFile: folder + "/password", atomically: true, encoding: .utf8)
    let wrong = bucket.settings.merging(["AWS_SECRET_ACCESS_KEY": "wrong-secret-of-the-bucket"]) {
      $1
    }
    let database = "postgresql://imagefetch@127.0.0.1:1/none"
    for settings in [
      wrong,
      [
        "IMAGEFETCH_STORAGE_JOBS": database,
        "IMAGEFETCH_STORAGE_JOBS_PASSWORD_FILE": folder + "/password",
      ],
      ["IMAGEFETCH_STORAGE_JOBS": database, "PGPASSWORD": password],
      ["IMAGEFETCH_STORAGE_JOBS": "postgresql://me:\(password)@127.0.0.1:1/none"],
      ["IMAGEFETCH_FETCH_PROXY": "ftp://me:\(password)@127.0.0.1:1"],
    ] {
      let watch = SecretWatch()
      watch.plant(environment: settings)
      watch.plant(password, "a password")
      do {
        _ = try await RunningService(folder: folder, settings: settings)
        Issue.record("it started")
      } catch let failure as RunningService.Unstarted {
        #expect(!failure.log.isEmpty)
        #expect(watch.found(in: Data(failure.log.utf8), isAnswer: false) == [])
      }
    }
    let proxied = ["fetch.proxy": "http://me:\(password)@127.0.0.1:1", "log.level": "debug"]
    SecretWatch.shared.plant(password, "a password")
    try await withService(environment(proxied)) { service in
      let job = try await service.run(["url": "http://127.0.0.1:2/x", "max_attempts": 1])
      #expect(job.error?.code == "connect_failure")
    }
  }
}

extension RunningService {
  fileprivate func post(batch: [[String: Any]], by fields: [String: String]) async throws
    -> [String]
  {
    let answer = try await send(
      "POST", "/jobs", headers: fields.merging(["Content-Type": "application/json"]) { $1 },
      body: JSONSerialization.data(withJSONObject: batch))
    try #require(answer.status == 202, "\(String(decoding: answer.body, as: UTF8.self))")
    return (try answer.json()["jobs"] as? [[String: Any]] ?? []).compactMap { $0["id"] as? String }
  }
}
