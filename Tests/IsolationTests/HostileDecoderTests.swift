import Foundation
import Glibc
import Isolation
import Jobs
import TestSupport
import Testing

@Suite(
  "A compromised decoder",
  .disabled(if: Sanitizer.isOfThreads, "decoders could not start under ThreadSanitizer")
)
struct HostileDecoderTests {
  private static let codec = IsolatedCodec.hostile()

  /// Makes the decoder do what the "image" requests, and returns the error.
  private static func end(
    of attempt: String, by codec: IsolatedCodec = codec, variants: [VariantRequest] = [],
    size: Int = 64, of byte: UInt8 = 0, pieces: Int = .max
  ) -> CodecError? {
    let limits = DecodeLimits(formats: [.jpeg], maxPixels: 1_000_000)
    return Decoding(
      bytes(attempt, size, of: byte), by: codec, pieces: pieces, limits: limits, variants: variants
    ).error
  }

  private static func bytes(_ attempt: String, _ size: Int = 64, of byte: UInt8 = 0) -> [UInt8] {
    Array(attempt.utf8) + [0] + [UInt8](repeating: byte, count: size)
  }

  @Test(
    "a compromised decoder is ended at its first forbidden system call",
    arguments: [
      "open", "environ", "init", "parent memory", "create", "unlink", "stat", "directory",
      "read", "write channel", "inet", "unix", "netlink", "connect", "descriptor",
      "duplicate", "memfd", "shared memory", "exec", "fork", "fork bomb", "thread", "kill parent",
      "kill all", "kill thread", "stop", "ptrace", "read others", "pidfd", "raise limit",
      "lower nice",
      "real time", "prctl", "unshare", "mount", "setuid", "bpf", "io_uring", "keyring", "perf",
      "userfault", "sleep", "handler", "executable memory", "executable stack", "map channel",
    ])
  func calls(attempt: String) throws {
    try #require(Self.codec.probe().get().hasFilter)
    let end = Self.end(of: attempt)
    #expect(end == .crashed(how: "a forbidden system call"))
    #expect(!FileManager.default.fileExists(atPath: "/tmp/imagefetch-hostile"))
  }

  @Test(
    "a compromised decoder gets no additional memory and cannot write to stderr",
    arguments: ["allocate", "allocate address space", "write"])
  func memory(attempt: String) {
    #expect(Self.end(of: attempt) == .broken(format: .jpeg, detail: "denied"))
  }

  @Test("a decoder that crashes is reported with its signal or exit")
  func crashes() {
    for (attempt, signal) in [
      ("crash", "signal 11"), ("no more stack", "signal 11"), ("abort", "signal 6"),
      ("a last word, and on", "signal 11"),
    ] {
      guard case .crashed(let how) = Self.end(of: attempt) else {
        Issue.record("no crash by \(attempt)")
        continue
      }
      #expect(how.hasPrefix(signal))
    }
    #expect(Self.end(of: "exit") == .crashed(how: "it exited unexpectedly"))
  }

  private static let late = CodecError.crashed(how: "it exceeded the time for one image")

  @Test(
    "a decoder has no more CPU time than its limit, in one step or in many",
    arguments: ["steps", "compute", "lie: a long step"])
  func time(attempt: String) {
    let short = IsolatedCodec.hostile { $0.maxTime = .seconds(1) }
    #expect(Self.end(of: attempt, by: short) == Self.late)
  }

  @Test("an endless decoder of a small image is ended long before the limit of an image")
  func endless() {
    let start = ContinuousClock.now
    let codec = IsolatedCodec.hostile { $0.maxTime = .seconds(3_600) }
    #expect(Self.end(of: "compute", by: codec) == Self.late)
    #expect(Self.end(of: "a long step", by: codec) == Self.late)
    // It can't have computed for longer than it existed.
    #expect(ContinuousClock.now - start < .seconds(360))
    // A large image may compute for longer.
    let end = Self.end(of: "a reported long step", by: codec)
    #expect(end == .broken(format: .jpeg, detail: "denied"))
  }

  @Test("a slow image in a reused decoder is tried again, at the lowest priority")
  func again() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    #expect(Self.end(of: "write", by: codec) == .broken(format: .jpeg, detail: "denied"))
    #expect(
      Self.end(of: "a loop after others", by: codec) == .broken(format: .jpeg, detail: "denied"))
    // In a fresh decoder, the image itself is to blame.
    #expect(Self.end(of: "write", by: codec) == .broken(format: .jpeg, detail: "denied"))
    #expect(Self.end(of: "compute", by: codec) == Self.late)
  }

  @Test("an image in a reused decoder that is lost asks for its bytes again, once")
  func bytesAgain() throws {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    #expect(Self.end(of: "write", by: codec) == .broken(format: .jpeg, detail: "denied"))
    let decoder = codec.makeDecoder(limits: DecodeLimits())
    decoder.append(Self.bytes("crash"))
    decoder.finishInput()
    while try decoder.step() != .again {}
    decoder.append(Self.bytes("crash"))
    decoder.finishInput()
    var steps: [DecodeStep] = []
    do { while steps.count < 1_000 { steps.append(try decoder.step()) } } catch {}
    #expect(steps.count < 1_000 && !steps.contains(.again))
  }

  @Test("a decoder that does nothing is ended after the same time")
  func nothing() {
    let patience = Duration.seconds(3)
    let impatient = IsolatedCodec.hostile { $0.replyTimeout = patience }
    let start = ContinuousClock.now
    #expect(Self.end(of: "say nothing", by: impatient) == .crashed(how: "it did not respond"))
    #expect(ContinuousClock.now - start < patience * 2)
  }

  @Test(
    "a decoder that violates the protocol is ended",
    arguments: [
      "garbage", "too long", "short", "huge", "another size", "no header", "orientation",
      "format", "forbidden format", "files", "early files", "endless list", "rendered",
      "nothing",
      "another's answer", "header again", "memory", "a last word of no fault",
      "unrequested preview", "more to compute",
    ])
  func lies(lie: String) {
    guard case .crashed(let how) = Self.end(of: "lie: " + lie) else {
      Issue.record("\(lie) was accepted")
      return
    }
    #expect(how.hasPrefix("protocol violation"))
  }

  @Test(
    "a decoder that violates the protocol for a variant is ended",
    arguments: ["long", "negative", "beyond", "format", "brands"])
  func variantLies(lie: String) {
    var variant = Self.small
    if lie == "brands" { variant.format = .avif }
    let end = Self.end(of: "lie: variant " + lie, variants: [variant])
    guard case .crashed(let how) = end else {
      Issue.record("\(lie) was accepted")
      return
    }
    #expect(how.hasPrefix("protocol violation"))
  }

  @Test("a decoder that never sends a promised file is ended, and blocks no thread")
  func promises() throws {
    let codec = IsolatedCodec.hostile { $0.replyTimeout = .seconds(2) }
    let decoder = codec.makeDecoder(limits: DecodeLimits(), variants: [Self.small])
    decoder.append(Self.bytes("lie: variant taken"))
    decoder.finishInput()
    var longest = Duration.zero
    #expect(throws: CodecError.crashed(how: "it did not respond")) {
      while true {
        let start = ContinuousClock.now
        defer { longest = max(longest, ContinuousClock.now - start) }
        _ = try decoder.step()
      }
    }
    #expect(longest < .seconds(1))
  }

  @Test("a decoder that reads no requests blocks no thread")
  func flood() {
    let end = Self.end(of: "flood", size: 200_000, pieces: 64)
    #expect(end == .crashed(how: "protocol violation: replies without reading requests"))
  }

  @Test("a decoder passes neither corrupted memory nor replies to the next image")
  func next() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    for first in ["plant", "two answers"] {
      for size in [64, 100_000] {
        #expect(Self.end(of: first, by: codec) != nil)
        let end = Self.end(of: "write", by: codec, size: size)
        #expect(end == .broken(format: .jpeg, detail: "denied"))
      }
    }
    // An image that also crashes a fresh decoder is reported as crashed.
    #expect(Self.end(of: "write", by: codec) != nil)
    #expect(Self.end(of: "exit", by: codec) == .crashed(how: "it exited unexpectedly"))
  }

  @Test("a compromised decoder does not make later images fail, even large ones")
  func large() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    #expect(Self.end(of: "plant a late crash", by: codec) != nil)
    let end = Self.end(of: "write", by: codec, size: 600_000, pieces: 65_536)
    #expect(end == .broken(format: .jpeg, detail: "denied"))
  }

  @Test("a false header of a compromised decoder does not make the image fail permanently")
  func madeUpHeader() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    #expect(Self.end(of: "plant a header", by: codec) != nil)
    // The bytes after the header arrive later.
    #expect(Self.end(of: "a header", by: codec, pieces: 32) == .noDecoder)
  }

  @Test("a decoder finds no bytes of earlier images in the shared memory")
  func remains() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    let before = Self.end(of: "who", by: codec)
    #expect(Self.end(of: "write", by: codec, size: 100_000, of: 0xA5) != nil)
    #expect(Self.end(of: "a variant", by: codec, variants: [Self.small]) == nil)
    let end = Self.end(of: "find remains", by: codec)
    #expect(end == .broken(format: .jpeg, detail: "denied"))
    #expect(before != nil && Self.end(of: "who", by: codec) == before, "it was one process")
  }

  @Test("a decoder that computes while idle is ended soon")
  func spinning() async throws {
    let codec = IsolatedCodec.hostile { ($0.maxIdle, $0.maxTime) = (1, .seconds(3_600)) }
    guard case .broken(_, let detail) = Self.end(of: "spin once it is idle", by: codec) else {
      Issue.record("no reply")
      return
    }
    let process = try #require(pid_t(detail))
    while let computed = Self.computed(by: process), computed < 10 {
      try await Task.sleep(for: .milliseconds(10))
    }
    #expect(Self.computed(by: process) == nil)
    let end = Self.end(of: "write", by: codec)
    #expect(end == .broken(format: .jpeg, detail: "denied"))
  }

  /// Seconds of CPU time; nil once the process has ended.
  private static func computed(by process: pid_t) -> Int? {
    guard let file = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8) else {
      return nil
    }
    // The fields after the name: the state first, the CPU time in the 12th and 13th, in hundredths of a second.
    let fields = file.split(separator: ")").last?.split(separator: " ") ?? []
    guard fields.count > 12, fields[0] != "Z" else { return nil }
    return fields[11...12].reduce(0) { $0 + (Int($1) ?? 0) } / 100
  }

  @Test("a compromised decoder does not affect the next rendering")
  func nextRendering() {
    let codec = IsolatedCodec.hostile { $0.maxIdle = 1 }
    #expect(Self.end(of: "plant", by: codec) != nil)
    let image = ImageDescription(format: .jpeg, width: 10, height: 10)
    let rendering = codec.render(Self.bytes("write"), of: image, as: [Variant(format: .jpeg)])
    #expect(throws: CodecError.broken(format: .jpeg, detail: "denied")) {
      while try rendering.step() == nil {}
    }
  }

  @Test("control characters in a decoder's message are removed")
  func text() {
    #expect(Self.end(of: "text") == .broken(format: .jpeg, detail: "a[31mb"))
  }

  @Test(
    "an invalid preview is a protocol violation",
    arguments: [
      ("preview", "an invalid preview"), ("long preview", "a preview of 2097152 bytes"),
    ])
  func preview(lie: String, told: String) throws {
    // In a decoder that has decoded other images, the violation would only make the image start again.
    let decoder = IsolatedCodec.hostile().makeDecoder(limits: DecodeLimits())
    decoder.append(Self.bytes("lie: " + lie))
    while try decoder.step() != .needsBytes {}
    #expect(decoder.hasMoreToShow)
    #expect(decoder.takePreview() == nil)
    decoder.beginPreview()
    #expect(throws: CodecError.crashed(how: "protocol violation: \(told)")) {
      while true { _ = try decoder.step() }
    }
    #expect(decoder.takePreview() == nil)
  }

  @Test("a decoder shows no preview before its header and its memory are accepted")
  func previewBeforeHeader() throws {
    let decoder = Self.codec.makeDecoder(limits: DecodeLimits())
    decoder.append(Self.bytes("lie: more to show"))
    while try decoder.step() != .needsBytes {}
    #expect(!decoder.hasMoreToShow)
  }

  private static let small: VariantRequest = {
    var request = VariantRequest(name: "small")
    (request.width, request.format) = (10, .jpeg)
    return request
  }()

  @Test("a crash ends only its own image; others are decoded")
  func neighbours() async {
    let codec = IsolatedCodec()
    await withTaskGroup { group in
      for _ in 0..<20 {
        group.addTask { _ = Self.end(of: "crash") }
        group.addTask { #expect(Decoding(Fixtures.smallJPEG, by: codec).error == nil) }
      }
    }
  }
}
