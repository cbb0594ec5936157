import Foundation
import Testing

@testable import Client

@Suite("The places where images are saved")
struct OutputTests {
  @Test("files with equal names never overwrite each other, even from many threads")
  func collisions() async throws {
    try await inFolder { folder async throws in
      let output = try Output(folder, isMany: true)
      let paths = try await withThrowingTaskGroup(of: [String].self) { group in
        for thread in 0..<8 {
          group.addTask {
            try (0..<50).map { number in
              let partial = try output.makePartial()
              try Descriptor.write("\(thread)-\(number)", to: partial.descriptor)
              return try output.place(partial, named: "cat.jpg")
            }
          }
        }
        return try await group.reduce(into: []) { $0 += $1 }
      }
      #expect(Set(paths).count == 400)
      let names = try FileManager.default.contentsOfDirectory(atPath: folder)
      #expect(names.count == 400 && names.contains("cat.jpg") && names.contains("cat-400.jpg"))
      let contents = try Set(
        names.map { try String(contentsOfFile: "\(folder)/\($0)", encoding: .utf8) })
      #expect(contents.count == 400)
    }
  }

  @Test("a file that is not placed is deleted and never has its final name")
  func partial() async throws {
    try await inFolder { folder async throws in
      do {
        let partial = try Output.folder(folder).makePartial()
        try Descriptor.write("half", to: partial.descriptor)
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
        #expect(names.count == 1 && names[0].hasPrefix(".imagefetch-"))
      }
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty)
    }
  }

  @Test("an output file replaces an existing file, even behind a link")
  func file() async throws {
    try await inFolder { folder async throws in
      try Data("old".utf8).write(to: URL(filePath: folder + "/real.jpg"))
      try FileManager.default.createSymbolicLink(
        atPath: folder + "/link.jpg", withDestinationPath: "real.jpg")
      let output = try Output(folder + "/link.jpg", isMany: false)
      let partial = try output.makePartial()
      try Descriptor.write("new", to: partial.descriptor)
      #expect(try output.place(partial, named: "ignored.jpg") == folder + "/link.jpg")
      #expect(try String(contentsOfFile: folder + "/real.jpg", encoding: .utf8) == "new")
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 2)
    }
  }

  @Test("a device is written to and not replaced")
  func device() throws {
    let output = try Output("/dev/null", isMany: false)
    let partial = try output.makePartial()
    try Descriptor.write("new", to: partial.descriptor)
    #expect(try output.place(partial, named: "x.jpg") == "/dev/null")
    var found = stat()
    #expect(stat("/dev/null", &found) == 0 && found.st_mode & S_IFMT == S_IFCHR)
  }

  @Test("a full disk is reported with the system's message")
  func full() throws {
    let output = try Output("/dev/full", isMany: false)
    let partial = try output.makePartial()
    try Descriptor.write("new", to: partial.descriptor)
    let error = #expect(throws: SaveError.self) { try output.place(partial, named: "x.jpg") }
    #expect(error?.text == "/dev/full: No space left on device")
  }

  @Test("several images need a folder, which a slash at the end creates")
  func choices() async throws {
    try await inFolder { folder async throws in
      let deep = try Output(folder + "/a/b/", isMany: true)
      #expect(deep == .folder(folder + "/a/b/"))
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty, "yet")
      _ = try deep.makePartial()
      #expect(try Output(folder + "/a", isMany: true) == .folder(folder + "/a"))
      #expect(try Output(nil, isMany: false) == .folder("."))
      #expect(throws: Output.Mistake.oneOnly("-")) { try Output("-", isMany: true) }
      #expect(throws: Output.Mistake.oneOnly(folder + "/c")) {
        try Output(folder + "/c", isMany: true)
      }
      #expect(throws: Output.Mistake.self) { try Output("/dev/null/x/", isMany: true) }
      #expect(throws: Output.Mistake.self) { try Output("", isMany: false) }
    }
  }

  private func inFolder(_ body: (String) async throws -> Void) async throws {
    let folder = NSTemporaryDirectory() + "imagefetch-output-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try await body(folder)
  }
}
