import Foundation
import Glibc
import Jobs
import Synchronization
import Testing

@testable import Images

@Suite("Images in a local folder")
struct LocalFolderTests {
  private let temporary: TemporaryFolder
  private var root: String { temporary.path + "/root" }

  init() throws {
    temporary = try TemporaryFolder()
    for folder in ["/root/sub/deep", "/outside"] {
      try FileManager.default.createDirectory(
        atPath: temporary.path + folder, withIntermediateDirectories: true)
    }
    try write("inside", to: "root/a.png")
    try write("deep", to: "root/sub/deep/b.png")
    try write("secret", to: "outside/secret.png")
  }

  private func write(_ text: String, to path: String) throws {
    try Data(text.utf8).write(to: URL(fileURLWithPath: temporary.path + "/" + path))
  }

  private func link(_ path: String, to target: String) {
    #expect(symlink(target, root + "/" + path) == 0)
  }

  /// Both ways to open a path: with one call, and component by component.
  static let ways = [true, false]

  private func folder(_ hasOpenat2: Bool) throws -> LocalFolder {
    try LocalFolder(root, hasOpenat2: hasOpenat2)
  }

  private func text(_ name: String, _ hasOpenat2: Bool = true) async throws -> String {
    let bytes = try await folder(hasOpenat2).open(name)
    return String(decoding: bytes.read(at: 0, count: bytes.count + 1), as: UTF8.self)
  }

  private func error(_ name: String, _ hasOpenat2: Bool) async -> LocalImageError? {
    do {
      _ = try await text(name, hasOpenat2)
      return nil
    } catch {
      return error as? LocalImageError
    }
  }

  @Test("images are opened by their path", arguments: ways)
  func opened(way: Bool) async throws {
    #expect(try await text("a.png", way) == "inside")
    #expect(try await text("sub/deep/b.png", way) == "deep")
    #expect(try await text("./sub/./deep/b.png", way) == "deep")
    let bytes = try await folder(way).open("a.png")
    #expect(bytes.count == 6)
    guard case .file(let file as OpenedFile, _) = bytes else {
      Issue.record("not a file")
      return
    }
    #expect(fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC != 0)
  }

  @Test(
    "paths that could leave the folder are refused, whether or not they exist",
    arguments: [
      "..", "../outside/secret.png", "sub/../a.png", "sub/../../outside/secret.png", "sub/..",
      "/etc/passwd", "//etc/passwd", "", "/", "a//b", "sub/", "a.png/", "a.png\u{0}.jpg", "\u{0}",
    ], ways)
  func outside(name: String, way: Bool) async {
    #expect(await error(name, way) == .outside)
  }

  @Test(
    "a missing path is reported as not found, also below a file and for very long names",
    arguments: ways)
  func notFound(way: Bool) async {
    let long = String(repeating: "x", count: 256)
    let longer = Array(repeating: String(repeating: "y", count: 63), count: 64).joined(
      separator: "/")
    #expect(longer.utf8.count == 4_095)
    for name in ["none", "sub/none", "a.png/b", "...", long, longer, longer + "z", longer + "/z"] {
      #expect(await error(name, way) == .notFound, "\(name.prefix(20))")
    }
    #expect(await error(String(repeating: "../", count: 1_366), way) == .outside)
  }

  @Test("a symbolic link out of the folder is refused", arguments: ways)
  func linksOut(way: Bool) async {
    link("absolute", to: temporary.path + "/outside/secret.png")
    link("relative", to: "../outside/secret.png")
    link("folder", to: "../outside")
    link("one", to: "two")
    link("two", to: "sub/three")
    link("sub/three", to: "../../outside/secret.png")
    link("back", to: "../root/a.png")
    link("self", to: "self")
    link("process", to: "/proc/self/root/etc/passwd")
    link("zero", to: "/dev/zero")
    // Refused even for a file within the folder, because the target of an absolute path may change.
    link("around", to: root + "/a.png")
    for name in [
      "absolute", "relative", "folder/secret.png", "one", "two", "sub/three", "back", "self",
      "process", "zero", "around",
    ] {
      #expect(await error(name, way) == .outside, "\(name)")
    }
  }

  @Test("a symbolic link within the folder is followed if the kernel can check it")
  func linksIn() async throws {
    link("b.png", to: "sub/deep/b.png")
    link("sub/up.png", to: "../a.png")
    link("way", to: "sub/deep")
    link("chain", to: "way/b.png")
    for (name, content) in [
      ("b.png", "deep"), ("sub/up.png", "inside"), ("way/b.png", "deep"), ("chain", "deep"),
    ] {
      #expect(try await text(name) == content)
      #expect(await error(name, false) == .outside)
    }
    link("dangling", to: "none")
    #expect(await error("dangling", true) == .notFound)
  }

  @Test("a folder, a FIFO and a socket are refused without waiting", arguments: ways)
  func otherKinds(way: Bool) async throws {
    #expect(mkfifo(root + "/fifo", 0o600) == 0)
    let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(listener) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let path = root + "/socket"
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
    let isBound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    #expect(isBound == 0)
    for name in ["sub", "sub/deep", ".", "fifo", "socket"] {
      #expect(await error(name, way) == .notAFile, "\(name)")
    }
  }

  @Test("a device is refused", arguments: ways)
  func device(way: Bool) async throws {
    let devices = try LocalFolder("/dev", hasOpenat2: way)
    for name in ["null", "zero"] {
      await #expect(throws: LocalImageError.notAFile) { try await devices.open(name) }
    }
  }

  @Test("a file that is replaced after opening is read as it was", arguments: ways)
  func replaced(way: Bool) async throws {
    let bytes = try await folder(way).open("a.png")
    try write("another", to: "root/new.png")
    #expect(rename(root + "/new.png", root + "/a.png") == 0)
    #expect(bytes.read(at: 0, count: 100) == Array("inside".utf8))
    #expect(try await text("a.png", way) == "another")
  }

  @Test("a file that is truncated returns fewer bytes and no error", arguments: ways)
  func shorter(way: Bool) async throws {
    let bytes = try await folder(way).open("a.png")
    #expect(truncate(root + "/a.png", 2) == 0)
    #expect(bytes.count == 6)
    #expect(bytes.read(at: 0, count: 6) == Array("in".utf8))
  }

  @Test("a folder that is swapped with a link concurrently is never left", arguments: ways)
  func swapped(way: Bool) async throws {
    let folder = try folder(way)
    try write("mine", to: "root/sub/secret.png")
    link("other", to: "../outside")
    let (root, isOver) = (root, Flag())
    // A separate thread, because the loop never waits.
    let swapper = Thread {
      let turns = [("sub", "held"), ("other", "sub"), ("sub", "other"), ("held", "sub")]
      while !isOver.isSet { for (from, to) in turns { rename(root + "/" + from, root + "/" + to) } }
    }
    swapper.start()
    defer { isOver.set() }
    for _ in 0..<2_000 {
      let bytes = try? await folder.open("sub/secret.png")
      if let bytes { #expect(bytes.read(at: 0, count: 100) == Array("mine".utf8)) }
    }
  }

  @Test("the folder stays the same after it was renamed and replaced")
  func renamedRoot() async throws {
    let folder = try folder(true)
    #expect(rename(root, temporary.path + "/moved") == 0)
    try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    try write("another", to: "root/a.png")
    let bytes = try await folder.open("a.png")
    #expect(bytes.read(at: 0, count: 100) == Array("inside".utf8))
  }

  @Test("a missing root, or one that is no folder, is refused")
  func badRoot() {
    #expect(throws: StoreError.self) { try LocalFolder(root + "/none") }
    #expect(throws: StoreError.self) { try LocalFolder(root + "/a.png") }
  }

  @Test("concurrent reads close all of their files")
  func descriptors() async throws {
    let folder = try folder(true)
    for _ in 0..<20 {
      try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<50 { group.addTask { try await folder.open("sub/deep/b.png").count } }
        for try await count in group { #expect(count == 4) }
      }
    }
    let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").filter {
      let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
      return target?.hasPrefix(root + "/") == true
    }
    #expect(open.isEmpty)
  }
}

/// A flag that one thread sets and another reads.
private final class Flag: Sendable {
  private let value = Atomic(false)
  var isSet: Bool { value.load(ordering: .relaxed) }
  func set() { value.store(true, ordering: .relaxed) }
}
