import Foundation
import Glibc
import Isolation
import Jobs
import TestSupport
import Testing

@Suite("A decoder that was taken over")
struct HostileDecoderTests {
  private static let codec = IsolatedCodec.hostile()

  /// What it does, as the "image" says.
  private static func end(
    of attempt: String, by codec: IsolatedCodec = codec, variants: [VariantRequest] = []
  ) -> CodecError? {
    let bytes = Array(attempt.utf8) + [UInt8](repeating: 0, count: 64)
    let limits = DecodeLimits(formats: [.jpeg], maxPixels: 1_000_000)
    return Decoded(bytes, by: codec, limits: limits, variants: variants).error
  }

  @Test(
    "is ended by its first call that decoding needs none of",
    arguments: [
      "open", "environ", "init", "parent memory", "create", "unlink", "stat", "directory",
      "read", "write channel", "inet", "unix", "netlink", "connect", "descriptor",
      "duplicate", "memfd", "shared memory", "exec", "fork", "fork bomb", "thread", "kill parent",
      "kill all", "kill thread", "ptrace", "read others", "pidfd", "raise limit", "lower nice",
      "real time", "prctl", "unshare", "mount", "setuid", "bpf", "io_uring", "keyring", "perf",
      "userfault", "sleep", "handler", "executable memory", "executable stack", "map channel",
    ])
  func calls(attempt: String) throws {
    try #require(Self.codec.probe().get().hasFilter)
    let end = Self.end(of: attempt)
    #expect(end == .crashed(how: "a system call that decoding needs none of"))
    #expect(!FileManager.default.fileExists(atPath: "/tmp/imagefetch-hostile"))
  }

  @Test(
    "gets no more memory than it may have, and nobody to tell of it",
    arguments: ["allocate", "allocate address space", "write"])
  func memory(attempt: String) {
    #expect(Self.end(of: attempt) == .broken(format: .jpeg, detail: "denied"))
  }

  @Test("that crashes is told by how it ended")
  func crashes() {
    guard case .crashed(let how) = Self.end(of: "crash") else { Issue.record("no crash"); return }
    #expect(how.hasPrefix("signal 11"))
    guard case .crashed(let how) = Self.end(of: "abort") else { Issue.record("no crash"); return }
    #expect(how.hasPrefix("signal 6"))
    #expect(Self.end(of: "exit") == .crashed(how: "it ended by itself"))
  }

  @Test("has so much time and no more")
  func time() {
    let short = IsolatedCodec.hostile { $0.maxTime = .seconds(1) }
    #expect(
      Self.end(of: "compute", by: short) == .crashed(how: "more time than an image may take"))
    let impatient = IsolatedCodec.hostile { $0.patience = .seconds(1) }
    #expect(Self.end(of: "say nothing", by: impatient) == .crashed(how: "no answer"))
  }

  @Test(
    "that lies is ended",
    arguments: [
      "garbage", "too long", "short", "huge", "another size", "no header", "orientation",
      "format", "forbidden format", "files", "endless list", "rendered",
    ])
  func lies(lie: String) {
    guard case .crashed(let how) = Self.end(of: "lie: " + lie) else {
      Issue.record("\(lie) was believed")
      return
    }
    #expect(how.hasPrefix("an answer that can't be"))
  }

  @Test(
    "that lies about a variant is ended", arguments: ["long", "negative", "beyond", "format"])
  func variantLies(lie: String) {
    let end = Self.end(of: "lie: variant " + lie, variants: [Self.small])
    guard case .crashed(let how) = end else {
      Issue.record("\(lie) was believed")
      return
    }
    #expect(how.hasPrefix("an answer that can't be"))
  }

  @Test("that never gives what it promised is ended")
  func promises() {
    let codec = IsolatedCodec.hostile { $0.patience = .seconds(1) }
    let end = Self.end(of: "lie: variant taken", by: codec, variants: [Self.small])
    #expect(end == .crashed(how: "no answer"))
  }

  private static let small: VariantRequest = {
    var request = VariantRequest(name: "small")
    (request.width, request.format) = (10, .jpeg)
    return request
  }()

  @Test("each costs its own picture: those beside it are decoded")
  func neighbours() async {
    let codec = IsolatedCodec()
    await withTaskGroup { group in
      for _ in 0..<20 {
        group.addTask { _ = Self.end(of: "crash") }
        group.addTask { #expect(Decoded(Fixtures.smallJPEG, by: codec).error == nil) }
      }
    }
  }
}
