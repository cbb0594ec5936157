import Foundation
import FoundationNetworking
import Synchronization
import TestSupport
import Testing

/// The built `imagefetch` in its own process, and a client for it.
final class RunningService: Sendable {
  let base: String
  let folder: String
  private let process: ChildProcess
  private let output: Output
  /// The `Authorization` field of the last request.
  private let lastToken = Mutex<String?>(nil)

  /// The text that the process has written to standard error.
  private final class Output: Sendable {
    let text = Mutex("")
    let hasEnded = Mutex(false)
  }

  /// The executable under test.
  static var executable: String { BuiltProgram.imagefetch }

  /// Creates a new folder for data and files. The caller removes it.
  static func makeFolder() throws -> String {
    let path = NSTemporaryDirectory() + "imagefetch-test-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    return path
  }

  /// Starts the process with loopback allowed as an origin. Waits until it listens and is ready.
  ///
  /// - Parameters:
  ///   - log: A pipe for standard error, which is read up to the line `listening`.
  ///   - arguments: Flags of `serve`.
  ///   - program: The executable to start.
  ///   - directory: The working directory; by default that of the tests.
  ///   - isReady: Whether to wait until the service accepts jobs.
  init(
    folder: String, settings: [String: String] = [:], log: TightPipe? = nil,
    program: String = executable, arguments: [String] = [], directory: String? = nil,
    isReady: Bool = true
  ) async throws {
    self.folder = folder
    var environment = ProcessInfo.processInfo.environment
    environment["IMAGEFETCH_SERVER_PORT"] = "0"
    environment["IMAGEFETCH_STORAGE_PATH"] = folder + "/data"
    environment["IMAGEFETCH_FETCH_ALLOW_NETWORKS"] = "127.0.0.1/32"
    environment["IMAGEFETCH_FETCH_ALLOW_PORTS"] = ""
    environment["IMAGEFETCH_LOG_FORMAT"] = "json"
    environment["SWIFT_BACKTRACE"] = "enable=no"
    environment.merge(Self.planted(beside: settings, arguments)) { $1 }
    environment.merge(settings) { $1 }
    SecretWatch.shared.plant(environment: environment)
    let (output, pipe) = (Output(), Pipe())
    process = try ChildProcess(
      [program, "serve"] + arguments, environment: environment, in: directory, output: .null,
      errors: log.map { .descriptor($0.writer) } ?? .pipe(pipe))
    if let log {
      Thread.detachNewThread {
        var text = ""
        while !text.contains("\"message\":\"listening\""), let line = log.lines(1).first {
          text += line + "\n"
        }
        output.text.withLock { $0 = text }
        output.hasEnded.withLock { $0 = true }
      }
    } else {
      pipe.fileHandleForReading.readPieces(atEnd: { output.hasEnded.withLock { $0 = true } }) {
        piece in
        output.text.withLock { $0 += String(decoding: piece, as: UTF8.self) }
      }
    }
    self.output = output
    base = try await Self.address(output, process)
    try await eventually {
      let answer = try await self.get("/readyz")
      return answer.status == 200
        || !isReady && !String(decoding: answer.body, as: UTF8.self).contains("starting")
    }
  }

  private static func address(_ output: Output, _ process: ChildProcess) async throws -> String {
    let pattern = #/"message":"listening".*"port":"?(\d+)/#
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      let text = output.text.withLock { $0 }
      if let match = text.firstMatch(of: pattern) { return "http://127.0.0.1:\(match.1)" }
      // A process that has ended may have written lines that are not read yet.
      if !process.isRunning, output.hasEnded.withLock({ $0 }) { break }
      try await Task.sleep(for: .milliseconds(5))
    }
    throw Unstarted(log: output.text.withLock { $0 })
  }

  struct Unstarted: Error { let log: String }

  /// The log so far.
  var log: String { output.text.withLock { $0 } }

  /// Kills the process with SIGKILL, as a power cut would.
  func kill() async throws {
    process.signal(SIGKILL)
    try await eventually { !self.process.isRunning }
    expectNoSecret(in: Data(log.utf8), "the log")
  }

  /// Sends SIGTERM.
  func terminate() { process.signal(SIGTERM) }

  /// Waits for the end of the process.
  func ended() async throws -> Int32 {
    try await eventually { !self.process.isRunning }
    expectNoSecret(in: Data(log.utf8), "the log")
    return process.wait()
  }

  /// Sends SIGTERM and waits for the end of the process.
  @discardableResult
  func stop() async throws -> Int32 {
    await examineMetrics()
    terminate()
    return try await ended()
  }

  var processIdentifier: Int32 { process.id }

  /// Resident memory of the process in MiB, without its decoder processes.
  func residentMegabytes() throws -> Int {
    try megabytes(#/VmRSS:\s+(\d+) kB/#)
  }

  /// The maximum of its resident memory so far, in MiB.
  func mostResidentMegabytes() throws -> Int {
    try megabytes(#/VmHWM:\s+(\d+) kB/#)
  }

  private func megabytes(_ pattern: Regex<(Substring, Substring)>) throws -> Int {
    let status = try String(contentsOfFile: "/proc/\(processIdentifier)/status", encoding: .utf8)
    let match = try #require(status.firstMatch(of: pattern))
    return try #require(Int(match.1)) >> 10
  }

  var isRunning: Bool { process.isRunning }

  struct Answer {
    var status: Int
    var headers: [String: String]
    var body: Data

    func json() throws -> [String: Any] {
      try #require(try JSONSerialization.jsonObject(with: body) as? [String: Any])
    }
  }

  private static let session: URLSession = {
    let configuration = URLSessionConfiguration.ephemeral
    configuration.urlCache = nil
    configuration.httpMaximumConnectionsPerHost = 64
    configuration.timeoutIntervalForRequest = patience / .seconds(1)
    return URLSession(configuration: configuration)
  }()

  func get(_ path: String, headers: [String: String] = [:]) async throws -> Answer {
    try await send("GET", path, headers: headers)
  }

  func send(
    _ method: String, _ path: String, headers: [String: String] = [:], body: Data? = nil
  ) async throws -> Answer {
    var request = URLRequest(url: URL(string: base + path)!)
    request.httpMethod = method
    request.httpBody = body
    for (name, value) in headers { request.setValue(value, forHTTPHeaderField: name) }
    SecretWatch.shared.plant(path: path, headers: headers, body: body)
    if let token = headers["Authorization"] { lastToken.withLock { $0 = token } }
    let (data, response) = try await Self.session.answer(to: request)
    let answer = try #require(response as? HTTPURLResponse)
    var fields: [String: String] = [:]
    for (name, value) in answer.allHeaderFields { fields["\(name)".lowercased()] = "\(value)" }
    let head = fields.map { "\($0): \($1)\n" }.joined()
    expectNoSecret(in: Data(head.utf8) + data, "the answer to \(method) \(path)", isAnswer: true)
    return Answer(status: answer.statusCode, headers: fields, body: data)
  }

  /// Submits a job or a batch.
  func submit(_ json: Any) async throws -> Answer {
    try await send(
      "POST", "/jobs", headers: ["Content-Type": "application/json"],
      body: JSONSerialization.data(withJSONObject: json))
  }

  /// Submits a URL.
  /// - Returns: the job's id.
  func submit(url: String) async throws -> String {
    let answer = try await submit(["url": url])
    #expect(answer.status == 202)
    return try #require(try answer.json()["id"] as? String)
  }

  /// Waits until the job has finished and returns it.
  func finished(_ id: String) async throws -> [String: Any] {
    let deadline = ContinuousClock.now + patience
    while ContinuousClock.now < deadline {
      let job = try await get("/jobs/\(id)?wait=20").json()
      if ["success", "failure", "cancelled"].contains(job["phase"] as? String) { return job }
    }
    throw Unfinished(log: log)
  }

  struct Unfinished: Error { let log: String }

  // MARK: Secrets

  /// Secrets for every service, so that the tests can check that they never appear. Excludes secrets that
  /// would change the tested behavior.
  private static func planted(
    beside settings: [String: String], _ arguments: [String]
  ) -> [String: String] {
    var planted = [
      "PGPASSWORD": "planted-database-password", "AWS_ACCESS_KEY_ID": "planted",
      "AWS_SECRET_ACCESS_KEY": "planted+secret/of-a-bucket",
    ]
    let hasView = arguments.count > 0 || settings.keys.contains { $0.hasPrefix("IMAGEFETCH_VIEW") }
    if !hasView { planted["IMAGEFETCH_VIEW_KEYS"] = "5ec2e7" + String(repeating: "b0b", count: 14) }
    return planted
  }

  private func expectNoSecret(in text: Data, _ place: String, isAnswer: Bool = false) {
    let found = SecretWatch.shared.found(in: text, isAnswer: isAnswer)
    if !found.isEmpty { Issue.record("\(place) holds \(found)") }
  }

  /// Checks the last metrics, if the service can still be reached.
  private func examineMetrics() async {
    guard isRunning, let url = URL(string: base + "/metrics") else { return }
    var request = URLRequest(url: url, timeoutInterval: 5)
    request.setValue(lastToken.withLock(\.self), forHTTPHeaderField: "Authorization")
    if let (text, _) = try? await Self.session.answer(to: request) {
      expectNoSecret(in: text, "the metrics")
    }
  }
}

extension URLSession {
  /// Like `data(for:)`, except for cancellation. The original can deadlock: cancelling waits for the code
  /// that resumes the task, which can wait for the cancellation.
  fileprivate func answer(to request: URLRequest) async throws -> (Data, URLResponse) {
    let sent = Mutex<URLSessionDataTask?>(nil)
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let task = dataTask(with: request) { data, response, error in
          if let data, let response, error == nil {
            continuation.resume(returning: (data, response))
          } else {
            continuation.resume(throwing: error ?? URLError(.badServerResponse))
          }
        }
        sent.withLock { $0 = task }
        task.resume()
        if Task.isCancelled { task.cancel() }
      }
    } onCancel: {
      DispatchQueue.global().async { sent.withLock(\.self)?.cancel() }
    }
  }
}

/// Repeats until the condition is true. Fails after the time limit of the tests.
func eventually(
  _ location: SourceLocation = #_sourceLocation, _ condition: () async throws -> Bool
) async throws {
  let deadline = ContinuousClock.now + patience
  while true {
    if try await condition() { return }
    try #require(ContinuousClock.now < deadline, "waited too long", sourceLocation: location)
    try await Task.sleep(for: .milliseconds(5))
  }
}

/// Starts a service in a new folder and calls the body. Then stops the service and removes the folder.
func withService(
  _ settings: [String: String] = [:], program: String = RunningService.executable,
  _ body: (RunningService) async throws -> Void
) async throws {
  let folder = try RunningService.makeFolder()
  defer { try? FileManager.default.removeItem(atPath: folder) }
  let service = try await RunningService(folder: folder, settings: settings, program: program)
  do {
    try await body(service)
  } catch {
    _ = try? await service.stop()
    throw error
  }
  #expect(try await service.stop() == 0)
}

/// The policy of an image that is opened in its own browser tab.
let imagePolicy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
