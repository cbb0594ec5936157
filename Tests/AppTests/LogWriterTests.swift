import CoreMetrics
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import App

@Suite("The log's writer", .timeLimit(.minutes(15)))
struct LogWriterTests {
  @Test("lines are written in order, many in one write")
  func order() throws {
    let (reader, writer) = try Self.messages()
    defer { for end in [reader, writer] { close(end) } }
    // The pipe is not read, so the thread blocks and lines accumulate.
    let log = LogWriter(to: writer) { "\($0) dropped\n" }
    defer { log.close() }
    for number in 0..<4000 { log.add("line \(number)\n") }
    var messages: [String] = []
    while !(messages.last?.hasSuffix("line 3999\n") ?? false) {
      messages.append(Self.message(from: reader))
    }
    #expect(messages.joined() == (0..<4000).map { "line \($0)\n" }.joined())
    #expect(messages.allSatisfy { $0.hasSuffix("\n") && $0.utf8.count <= Int(PIPE_BUF) })
    #expect(messages.count < 1000)
  }

  @Test("the lines of each of many threads stay in order")
  func threads() async throws {
    let pipe = TightPipe()
    let log = LogWriter(to: pipe.writer) { "\($0) dropped\n" }
    defer { log.close() }
    await withTaskGroup { group in
      for thread in 0..<4 {
        group.addTask { for number in 0..<500 { log.add("\(thread) \(number)\n") } }
      }
    }
    let lines = pipe.lines(2000)
    for thread in 0..<4 {
      let own = lines.filter { $0.hasPrefix("\(thread) ") }
      #expect(own == (0..<500).map { "\(thread) \($0)" })
    }
  }

  @Test(
    "lines that do not fit are dropped, and their number is logged in their place",
    arguments: [false, true])
  func full(isNonBlocking: Bool) throws {
    let pipe = TightPipe()
    try pipe.fill()
    if isNonBlocking { pipe.setNonBlocking() }
    let counted = PrometheusRegistry()
    let log = LogWriter(to: pipe.writer, limits: .init(lines: 100, bytes: 1 << 20)) {
      "\($0) dropped\n"
    }
    defer { log.close() }
    log.add("first\n")
    // The thread has taken the first line and waits for the pipe.
    while log.waitingLines > 0 { sched_yield() }
    for number in 0..<150 { log.add("a\(number)\n") }
    #expect(log.droppedLines == 50)
    log.count(by: .init(label: "imagefetch_log_dropped_total", factory: counted))
    #expect(!log.flush(within: .milliseconds(1)))
    let expected = ["first"] + (0..<100).map { "a\($0)" } + ["50 dropped"]
    #expect(pipe.lines(expected.count) == expected)
    #expect(log.flush(within: .seconds(60)))
    log.add("there is space again\n")
    #expect(pipe.lines(1) == ["there is space again"])
    #expect(counted.render().contains("imagefetch_log_dropped_total 50\n"))
  }

  @Test("the buffered bytes are limited")
  func bytes() throws {
    let pipe = TightPipe()
    try pipe.fill()
    let log = LogWriter(to: pipe.writer, limits: .init(lines: 100, bytes: 1000)) {
      "\($0) dropped\n"
    }
    defer { log.close() }
    log.add("first\n")
    while log.waitingLines > 0 { sched_yield() }
    let long = String(repeating: "x", count: 699)
    log.add(long + "\n")
    log.add(long + "\n")
    log.add("short, but behind the gap\n")
    #expect(log.droppedLines == 2)
    #expect(pipe.lines(3) == ["first", long, "2 dropped"])
  }

  @Test("the writer continues when the pipe is closed, and reports dropped lines later")
  func closed() throws {
    let pipe = TightPipe()
    close(pipe.reader)
    let log = LogWriter(to: pipe.writer) { "\($0) dropped\n" }
    defer { log.close() }
    for number in 0..<10_000 {
      log.add("line \(number)\n")
      if number % 1000 == 0 { #expect(log.flush(within: .seconds(60))) }
    }
    #expect(log.flush(within: .seconds(60)))
    #expect(log.droppedLines == 10_000)
    let next = TightPipe()
    dup2(next.writer, pipe.writer)
    log.add("back\n")
    #expect(next.lines(2) == ["10000 dropped", "back"])
  }

  @Test("lines are passed to a progress display on the same terminal while it accepts them")
  func displayed() throws {
    let pipe = TightPipe()
    let shown = Mutex<(text: String, isOpen: Bool)>(("", true))
    let log = LogWriter(
      to: pipe.writer,
      display: { lines in
        shown.withLock { shown in
          if shown.isOpen { shown.text += String(decoding: lines, as: UTF8.self) }
          return shown.isOpen
        }
      }, notice: { "\($0) dropped\n" })
    defer { log.close() }
    log.add("above\n")
    log.add("the bars\n")
    #expect(log.flush(within: .seconds(60)))
    #expect(shown.withLock { $0.text } == "above\nthe bars\n")
    shown.withLock { $0.isOpen = false }
    log.add("below\n")
    #expect(pipe.lines(1) == ["below"])
    #expect(log.droppedLines == 0)
  }

  /// Both ends of a socket that keeps writes separate and buffers few of them.
  private static func messages() throws -> (Int32, Int32) {
    var ends: [Int32] = [0, 0]
    try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
    var size: Int32 = 4096
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<Int32>.size))
    return (ends[0], ends[1])
  }

  private static func message(from reader: Int32) -> String {
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    let count = read(reader, &buffer, buffer.count)
    return String(decoding: buffer.prefix(max(0, count)), as: UTF8.self)
  }
}

@Suite("A service whose log is not read", .timeLimit(.minutes(15)))
struct UnreadLogTests {
  @Test(
    "the service works and ends normally, and counts dropped lines",
    arguments: [Reader.asleep, .asleepAndNonBlocking, .gone])
  func service(reader: Reader) async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg))
    let pipe = TightPipe()
    try await inFolder { folder in
      let service = try await RunningService(
        folder: folder, settings: ["IMAGEFETCH_LOG_LEVEL": "debug"], log: pipe)
      switch reader {
      case .asleep: break
      case .asleepAndNonBlocking: pipe.setNonBlocking()
      case .gone: close(pipe.reader)
      }
      // More than the pipe and the writer's buffer can hold.
      let path = "/" + String(repeating: "x", count: 1500)
      try await withThrowingTaskGroup { group in
        for _ in 0..<8 {
          group.addTask {
            for _ in 0..<120 {
              let status = try await service.get(path).status
              #expect(status == 404)
            }
          }
        }
        try await group.waitForAll()
      }
      let id = try await service.submit(url: origin.url("/photo.jpg"))
      #expect(try await service.finished(id)["phase"] as? String == "success")
      let metrics = String(decoding: try await service.get("/metrics").body, as: UTF8.self)
      let dropped = metrics.firstMatch(of: #/(?m)^imagefetch_log_dropped_total (\d+)$/#)
      #expect(Int(try #require(dropped).1) ?? 0 > 0)
      #expect(try await service.stop() == 0)
    }
  }

  enum Reader { case asleep, asleepAndNonBlocking, gone }

  @Test("a failed start ends with its status")
  func refusal() async throws {
    let pipe = TightPipe()
    try pipe.fill()
    let process = try ChildProcess(
      [RunningService.executable, "serve", "--config", "/nowhere"],
      errors: .descriptor(pipe.writer))
    try await eventually { !process.isRunning }
    #expect(process.status == 1)
  }

  @Test("without a standard error, the log is written into no other file")
  func none() async throws {
    try await inFolder { folder in
      let told = try await Shell.run(
        """
        IMAGEFETCH_SERVER_PORT=0 IMAGEFETCH_STORAGE_PATH='\(folder)/data' \
          '\(RunningService.executable)' serve 2>&- &
        for _ in $(seq 3000); do
          [ -e '\(folder)/data/jobs.sqlite' ] && break
          sleep 0.01
        done
        readlink /proc/$!/fd/2
        kill $!; wait $!; echo "status $?"
        """, in: folder)
      #expect(told.hasPrefix("/dev/null\nstatus "), "\(told)")
    }
  }

  @Test("lines logged before a crash are written")
  func fatal() async throws {
    try await withServiceThatDies { service in
      for _ in 0..<50 { #expect(try await service.get("/nowhere").status == 404) }
      Foundation.kill(service.processIdentifier, SIGABRT)
      try await eventually { !service.isRunning }
      // The rest of the pipe has been read by then, or soon will be.
      try await eventually { service.log.components(separatedBy: "/nowhere").count == 51 }
    }
  }

  private func withServiceThatDies(_ body: (RunningService) async throws -> Void) async throws {
    try await inFolder { folder in
      let service = try await RunningService(
        folder: folder, settings: ["IMAGEFETCH_LOG_LEVEL": "debug"])
      try await body(service)
    }
  }
}
