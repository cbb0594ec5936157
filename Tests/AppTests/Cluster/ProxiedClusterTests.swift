import Digests
import Foundation
import TestSupport
import Testing

/// Three processes behind a real nginx with round robin.
@Suite("Instances behind nginx", .timeLimit(.minutes(15)))
struct ProxiedClusterTests {
  @Test("the instances behave as one service: events, waits, changes, cancellation, images")
  func whole() async throws {
    try await Cluster.open { cluster, origin in
      let gate = Gate()
      origin.on("/held", .held(Fixtures.filedPNG, after: 40_000, by: gate))
      origin.on("/stalled", .stalled(Fixtures.filedPNG, after: 40_000))
      try await withProxy(to: cluster) { proxy in
        let id = try await proxy.submit(origin.url("/held"))
        async let events = proxy.curl("-N", "/jobs/\(id)/events")
        // Each change is read through another instance than the one that wrote it.
        for priority in ["high", "low", "normal", "high", "low", "normal"] {
          _ = try await proxy.curl(
            "-X PATCH -H 'Content-Type: application/merge-patch+json' -d '{\"priority\":\"\(priority)\"}'",
            "/jobs/\(id)")
          let read = try await proxy.curl("", "/jobs/\(id)")
          #expect(read.contains("\"priority\":\"\(priority)\""), "\(read)")
        }
        async let waited = proxy.curl("", "/jobs/\(id)?wait=30")
        try await eventually { try await cluster[0].job(id).phase == "loading" }
        gate.open()
        #expect(try await waited.contains("\"phase\":\"success\""))
        let told = try await events
        #expect(
          told.contains("event: image\n") && told.contains("\"phase\":\"success\""), "\(told)")
        let digest = SHA256.hash(data: Fixtures.filedPNG).map {
          String($0 >> 4, radix: 16) + String($0 & 15, radix: 16)
        }.joined()
        for _ in 0..<6 {
          let image = try await proxy.shell(
            "\(proxy.command) http://127.0.0.1/jobs/\(id)/image | sha256sum")
          #expect(image.hasPrefix(digest + " "))
        }

        let stalled = try await proxy.submit(origin.url("/stalled"))
        #expect(await origin.waitForRequests(to: "/stalled"))
        let connection = try #require(origin.requests.last?.connection)
        _ = try await proxy.curl("-X DELETE", "/jobs/\(stalled)")
        #expect(await origin.waitForClose(of: connection) != nil)
        for _ in 0..<3 {
          #expect(try await proxy.curl("", "/jobs/\(stalled)").contains("\"phase\":\"cancelled\""))
        }
      }
    }
  }

  @Test(
    "clients notice nothing of a stopped instance, and at most a retryable 502 of a killed one"
  )
  func leaving() async throws {
    try await Cluster.open(3, ["cluster.lease": "2s"]) { cluster, origin in
      origin.on("/done", .ok(Fixtures.smallPNG))
      for client in 0..<3 {
        for number in 0..<60 { origin.on("/\(client)/\(number)", .ok(Fixtures.smallPNG)) }
      }
      try await withProxy(to: cluster) { proxy in
        let done = try await proxy.submit(origin.url("/done"))
        _ = try await proxy.curl("", "/jobs/\(done)?wait=30")
        // Submits as the page recommends. Other requests are not repeated.
        let said = try await withThrowingTaskGroup { group in
          for client in 0..<3 {
            group.addTask {
              try await proxy.shell(
                """
                for n in $(seq 0 59); do
                  \(proxy.command) -f --retry 9 --retry-all-errors --retry-delay 1 -H 'Idempotency-Key: "\(client)-'$n'"' \
                    --json '{"url": "\(origin.url("/\(client)/"))'$n'"}' http://127.0.0.1/jobs | head -c 44
                  echo
                  \(proxy.command) -o /dev/null -w 'look %{http_code}\\n' http://127.0.0.1/jobs/\(done)/image
                done
                """)
            }
          }
          group.addTask {
            try await Task.sleep(for: .milliseconds(400))
            cluster[1].terminate()
            #expect(try await cluster[1].ended() == 0)
            try await cluster[2].kill()
            return ""
          }
          return try await group.reduce("", +)
        }
        let lines = said.split(separator: "\n")
        #expect(
          lines.count { $0 == "look 200" } == 180, "\(Set(lines.filter { $0.contains("look") }))")
        let ids = Set(said.matches(of: #/"id":"([0-9a-f-]{36})"/#).map { String($0.1) })
        #expect(ids.count == 180, "\(lines.filter { !$0.contains("id") && !$0.contains("look") })")
        for id in ids { #expect(try await cluster[0].outcome(id).phase == "success") }
        #expect(try await cluster[0].all("success").count == 181, "no job twice")
      }
    }
  }

  /// Runs the body with nginx, configured with the lines in docs/scaling.md.
  private func withProxy(
    to cluster: Cluster, _ body: (ClusterProxy) async throws -> Void
  ) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let proxy = try ClusterProxy(to: cluster.services.map(\.base), folder: folder)
    defer { proxy.stop() }
    try await eventually { try await proxy.curl("", "/livez").contains("live") }
    try await body(proxy)
  }
}

/// nginx on a socket in a folder, and curl commands that use it.
private struct ClusterProxy: Sendable {
  let command = "curl -sS -m 60 --noproxy '*' --unix-socket nginx.socket"
  private let folder: String
  private let process: ChildProcess

  init(to services: [String], folder: String) throws {
    self.folder = folder
    let page = try #require(Documentation.pages.first { $0.path == "docs/scaling.md" })
    let shown = try #require(page.blocks("nginx").first)
    #expect(
      try String(contentsOfFile: Readme.root + "deploy/cluster.nginx", encoding: .utf8) == shown
        + "\n")
    var lines = shown.replacing("listen 80", with: "listen unix:\(folder)/nginx.socket")
    for (number, service) in services.enumerated() {
      let address = service.replacing("http://", with: "")
      #expect(lines.contains("server imagefetch-\(number + 1):8080;"))
      lines = lines.replacing("imagefetch-\(number + 1):8080", with: address)
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map {
      "\($0)_temp_path \(folder)/\($0);"
    }
    try """
    daemon off; master_process off; pid \(folder)/nginx.pid; error_log stderr;
    events {}
    http { access_log off; \(temporary.joined(separator: " "))
    \(lines) }
    """.write(toFile: folder + "/nginx.conf", atomically: true, encoding: .utf8)
    process = try ChildProcess(
      ["/usr/sbin/nginx", "-p", folder, "-e", "stderr", "-c", folder + "/nginx.conf"],
      errors: .null, endsWithOwner: true)
  }

  func stop() { process.signal(SIGKILL) }

  func shell(_ script: String) async throws -> String { try await Shell.run(script, in: folder) }

  func curl(_ flags: String, _ path: String) async throws -> String {
    try await shell("\(command) \(flags) 'http://127.0.0.1\(path)' 2>&1")
  }

  func submit(_ url: String) async throws -> String {
    let answer = try await curl("--json '{\"url\": \"\(url)\"}'", "/jobs")
    return String(try #require(answer.firstMatch(of: #/"id":"([0-9a-f-]{36})"/#)?.1, "\(answer)"))
  }
}
