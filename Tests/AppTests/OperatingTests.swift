import Foundation
import TestSupport
import Testing

/// Performs what docs/operating.md tells operators to do.
@Suite("The operator's tasks", .timeLimit(.minutes(15)))
struct OperatingTests {
  @Test("a copy of the stopped service's folder can be restored")
  func backup() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg))
    let folders = [try RunningService.makeFolder(), try RunningService.makeFolder()]
    defer { for folder in folders { try? FileManager.default.removeItem(atPath: folder) } }

    let first = try await RunningService(folder: folders[0])
    let id = try await first.submit(url: origin.url("/photo.jpg"))
    let before = try await first.finished(id)
    #expect(try await first.stop() == 0)
    try FileManager.default.copyItem(
      atPath: folders[0] + "/data", toPath: folders[1] + "/data")

    let second = try await RunningService(folder: folders[1])
    let after = try await second.get("/jobs/\(id)").json()
    #expect(NSDictionary(dictionary: after) == NSDictionary(dictionary: before))
    let image = try await second.get("/jobs/\(id)/image")
    #expect(image.status == 200)
    #expect(Array(image.body) == Fixtures.jpeg)
    #expect(try await second.stop() == 0)
  }

  @Test("a folder that another service uses is reported in plain words")
  func locked() async throws {
    try await withService { service in
      try await expectRefusal(
        of: service.folder + "/data", for: "is locked: another service uses this folder")
    }
  }

  @Test(
    "the reason why a folder cannot be used is reported in plain words",
    arguments: [
      ("touch data", "making the folder: Not a directory"),
      ("mkdir -p data/d && printf %4096d 1 > data/d/jobs.sqlite", "file is not a database"),
    ])
  func unusable(preparation: String, words: String) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    _ = try await Shell.run(preparation, in: folder)
    try await expectRefusal(of: folder + "/data/d", for: words)
  }

  /// Starts a service with a folder that it cannot use. It must report that in one line, without a dump of
  /// Swift or Foundation.
  private func expectRefusal(of path: String, for words: String) async throws {
    let told = try await Shell.run(
      """
      IMAGEFETCH_SERVER_PORT=0 IMAGEFETCH_STORAGE_PATH='\(path)' \
        '\(RunningService.executable)' serve 2>&1
      echo "status $?"
      """, in: "/")
    #expect(told.hasPrefix("storage.path: \"\(path)\" can't be used: "), "\(told)")
    #expect(told.contains(words) && told.hasSuffix("\nstatus 1\n"), "\(told)")
    #expect(told.split(separator: "\n").count == 2, "\(told)")
    #expect(!told.contains("unavailable(") && !told.contains("Domain"), "\(told)")
  }

  @Test("nginx with the documented lines passes on TLS, long polls and events")
  func nginx() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    origin.on("/photo.jpg", .held(Fixtures.jpeg, after: 100, by: gate))
    let token = "a token of the test"
    let hash = try await Shell.run(
      "printf %s '\(token)' | sha256sum | cut -d ' ' -f 1", in: folder)
    let settings = [
      "IMAGEFETCH_AUTH_TOKENS": "[{name: web, sha256: \(hash.dropLast()), scopes: [jobs]}]",
      "IMAGEFETCH_FETCH_TIMEOUT": "5m", "IMAGEFETCH_FETCH_STALL_TIMEOUT": "5m",
    ]
    try await withService(settings) { service in
      let proxy = try await Proxy(to: service.base, folder: folder)
      defer { proxy.stop() }
      let curl = """
        curl -sSN -m 60 --noproxy '*' --cacert cert.pem --unix-socket \(Proxy.socket) \
        -H 'Authorization: Bearer \(token)'
        """
      let base = "https://images.example.org"
      let job = try await Shell.run(
        "\(curl) --json '{\"url\": \"\(origin.url("/photo.jpg"))\"}' \(base)/jobs", in: folder)
      let path = try #require(job.firstMatch(of: #/"self":"([^"]+)"/#)?.1)
      #expect(await origin.waitForRequests(to: "/photo.jpg"))
      async let events = Shell.run("\(curl) \(base)\(path)/events | tee events", in: folder)
      // The events arrive while the stream is open: only the gate ends it.
      try await eventually {
        let heard = try? String(contentsOfFile: folder + "/events", encoding: .utf8)
        return heard?.contains("event: phase\n") == true
      }
      let waited = try await Shell.run("\(curl) '\(base)\(path)?wait=1'", in: folder)
      #expect(waited.contains("\"phase\":\"loading\""))
      gate.open()
      #expect(try await events.contains("\"phase\":\"success\""))
      // The largest body that the service accepts, so the proxy must accept it, too.
      let upload = try await Shell.run(
        """
        head -c 33554432 /dev/zero | \(curl) -o /dev/null -w '%{http_code}' \
        -H 'Content-Type: image/png' --data-binary @- \(base)/jobs
        """, in: folder)
      #expect(upload == "202")
      // A batch has no such limit: the limit applies to each line.
      let list = try await Shell.run(
        """
        { yes '#\(String(repeating: "-", count: 999))' | head -n 34000; echo '\(origin.url("/photo.jpg"))'; } |
        \(curl) -o /dev/null -w '%{http_code}' -H 'Content-Type: text/uri-list' --data-binary @- \(base)/batches
        """, in: folder)
      #expect(list == "202")
    }
  }
}

/// nginx with the lines in docs/operating.md, on a socket and with its own certificate.
private struct Proxy {
  /// The name of the socket in the folder.
  static let socket = "nginx.socket"
  private let process: ChildProcess

  init(to service: String, folder: String) async throws {
    let lines = try #require(Documentation.operating.blocks("nginx").first)
      .replacing("listen 443", with: "listen unix:\(folder)/\(Self.socket)")
      .replacing("/etc/ssl/images.pem", with: folder + "/cert.pem")
      .replacing("/etc/ssl/images.key", with: folder + "/key.pem")
      .replacing("http://127.0.0.1:8080", with: service)
    let whole = """
      daemon off; master_process off; pid \(folder)/nginx.pid; error_log stderr;
      events {}
      http {
        access_log off; client_body_temp_path \(folder)/body; proxy_temp_path \(folder)/proxy;
        fastcgi_temp_path \(folder)/f; uwsgi_temp_path \(folder)/u; scgi_temp_path \(folder)/s;
        \(lines)
      }
      """
    try whole.write(toFile: folder + "/nginx.conf", atomically: true, encoding: .utf8)
    _ = try await Shell.run(
      """
      openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=images.example.org \
        -addext subjectAltName=DNS:images.example.org -keyout key.pem -out cert.pem 2>/dev/null
      """, in: folder)
    process = try ChildProcess(
      ["/usr/sbin/nginx", "-p", folder, "-e", "stderr", "-c", folder + "/nginx.conf"],
      errors: .null, endsWithOwner: true)
    let ask = "curl -sk -o /dev/null --unix-socket \(Self.socket) https://a/livez; echo $?"
    do {
      try await eventually { try await Shell.run(ask, in: folder) == "0\n" }
    } catch {
      stop()
      throw error
    }
  }

  func stop() { process.signal(SIGKILL) }
}
