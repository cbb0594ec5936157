internal import Digests
internal import Glibc
internal import Synchronization

/// Names the files of a run, and decides whether existing files are fetched again.
///
/// With --skip-existing each name contains a digest of its URL and variant. A file with that name was
/// therefore made from the same URL, in this run or an earlier one.
final class Naming: Sendable {
  /// What is known about a file before its image is requested.
  enum FileState: Equatable {
    case wanted
    /// The URL's file exists, at this path.
    case exists(String)
    /// The same URL occurred before in this run.
    case isRepeated
  }

  private let output: Output
  private let template: NameTemplate
  private let skipsExisting: Bool
  /// The format of all images, if --format or the template determines it.
  private let format: ImageOptions.Format?
  /// The query that selects the variant; empty for the original image.
  private let variant: String
  /// The digests of the URLs of this run, up to a million.
  private let seen = Mutex<Set<UInt64>>([])

  /// - Parameter template: Nil: the last part of the URL's path.
  init(
    _ output: Output, template: NameTemplate?, skipsExisting: Bool, format: ImageOptions.Format?,
    variant: String
  ) {
    (self.output, self.skipsExisting, self.format) = (output, skipsExisting, format)
    self.variant = variant
    let template = template ?? .standard
    self.template = skipsExisting ? template.withDigest : template
  }

  /// Returns the outcome of a URL that need not be fetched. Nil if it must be fetched.
  func outcomeWithoutRequest(of url: String, index: Int) -> Outcome? {
    switch fileState(of: url, index: index) {
    case .wanted: nil
    case .exists(let path): .skipped(path: path)
    case .isRepeated: .skipped(path: nil)
    }
  }

  /// Returns whether the image of a URL must be fetched.
  func fileState(of url: String, index: Int) -> FileState {
    guard skipsExisting, case .folder(let folder) = output else { return .wanted }
    let digest = digest(of: url)
    guard seen.withLock({ $0.insert(digest).inserted }) else { return .isRepeated }
    let endings = format.map { [$0 == .jpeg ? "jpg" : $0.rawValue] } ?? FileName.endings
    let names = template.names(
      of: url, index: index, digest: Self.text(digest), endings: endings)
    let paths = names.map { PartialFile.join(folder, $0) }
    return paths.first { access($0, F_OK) == 0 }.map(FileState.exists) ?? .wanted
  }

  /// Returns the name of an image in the folder.
  /// - Parameter ending: The extension of its format, without the dot.
  func name(of url: String, index: Int, ending: String) -> String {
    template.name(of: url, index: index, digest: Self.text(digest(of: url)), ending: ending)
  }

  /// 64 bits: the chance that two of a million URLs share a digest is 1 in 37 million.
  private func digest(of url: String) -> UInt64 {
    let text = ImageOptions.url(url) + "\n" + variant
    return SHA256.hash(data: Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  private static func text(_ digest: UInt64) -> String {
    let digits = String(digest, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}
