internal import Glibc
internal import Synchronization

/// How the files of a run are called, and whether those that are there are fetched again.
final class Naming: Sendable {
  /// What is known of a file before its image is asked for.
  enum Standing: Equatable {
    case wanted
    /// A file of this name is there; its path.
    case exists(String)
    /// The same URL was asked for before in this run.
    case isRepeated
    /// Another URL of this run has the name.
    case isTaken(String)
  }

  private let output: Output
  /// nil: as the service proposes.
  private let template: NameTemplate?
  private let skipsExisting: Bool
  /// What --format, or a name's own ending, says that all images will be.
  private let format: ImageOptions.Format?
  /// The names that URLs of this run have, and whose; hashes, for lists of a million: some 40 bytes a line.
  private let owners = Mutex<[Int: Int]>([:])

  init(_ output: Output, template: NameTemplate?, skipsExisting: Bool, format: ImageOptions.Format?)
  {
    (self.output, self.skipsExisting, self.format) = (output, skipsExisting, format)
    // What is skipped has to be known by its URL alone, before a redirect may give it another name.
    self.template = template ?? (skipsExisting ? .usual : nil)
  }

  /// What becomes of a URL whose image need not be asked for, or can't be kept; nil: it is wanted.
  func outcomeUnasked(of url: String, index: Int) -> Outcome? {
    switch standing(of: url, index: index) {
    case .wanted: nil
    case .exists(let path): .skipped(path: path)
    case .isRepeated: .skipped(path: nil)
    case .isTaken(let name):
      .failed(
        code: "name_taken",
        detail: "Another URL's image may be \(name) too: --output-template tells them apart.")
    }
  }

  /// Whether the image of a URL has to be fetched.
  func standing(of url: String, index: Int) -> Standing {
    guard skipsExisting else { return .wanted }
    switch output {
    case .standardOutput: return .wanted
    case .file(let path): return access(path, F_OK) == 0 ? .exists(path) : .wanted
    case .folder(let folder): return standing(of: url, index: index, in: folder)
    }
  }

  private func standing(of url: String, index: Int, in folder: String) -> Standing {
    guard let template else { return .wanted }
    let endings = format.map { [$0 == .jpeg ? "jpg" : $0.rawValue] } ?? FileName.endings
    let names = template.names(of: url, index: index, endings: endings)
    guard let name = names.first else { return .wanted }
    let owner = owners.withLock { owners -> Int? in
      defer { if owners[name.hashValue] == nil { owners[name.hashValue] = url.hashValue } }
      return owners[name.hashValue]
    }
    if let owner { return owner == url.hashValue ? .isRepeated : .isTaken(name) }
    let paths = names.map { PartialFile.join(folder, $0) }
    return paths.first { access($0, F_OK) == 0 }.map(Standing.exists) ?? .wanted
  }

  /// What an image may be called in a folder.
  /// - Parameter proposed: by the service; it ends as the bytes are.
  func name(of url: String, index: Int, proposed: String) -> String {
    let ending = proposed.split(separator: ".").last.map(String.init) ?? "bin"
    return template?.name(of: url, index: index, ending: ending) ?? proposed
  }
}
