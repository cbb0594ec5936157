internal import Glibc

/// Where images go.
public enum Output: Sendable, Equatable {
  /// Into a folder, under names of the service's that are not taken there.
  case folder(String)
  /// Into one file, in the place of what is there.
  case file(String)
  /// One, to standard output.
  case standardOutput

  /// Why it can't be that.
  public enum Mistake: Error, Equatable {
    /// Several images, and only room for one.
    case oneOnly(String)
    /// It is not to be used; for people.
    case unusable(String)
  }

  /// - Parameters:
  ///   - text: as given after `-o`; nil for the working directory. With a slash at its end it is a folder, which is made
  ///     for the first image that needs it.
  ///   - isMany: whether there may be more images than one.
  public init(_ text: String?, isMany: Bool) throws(Mistake) {
    switch text {
    case nil: self = .folder(".")
    case "-": self = .standardOutput
    case let path?:
      guard !path.isEmpty, !path.utf8.contains(0) else { throw .unusable("the output has no name") }
      self = path.hasSuffix("/") || Self.isFolder(path) ? .folder(path) : .file(path)
    }
    switch self {
    case .folder(let path):
      if let code = Self.refusal(path) { throw Self.unusable(path, code) }
    case .file(let path): if isMany { throw .oneOnly(path) }
    case .standardOutput: if isMany { throw .oneOnly("-") }
    }
  }

  /// The format that a file's name ends with, where it can be written.
  var format: ImageOptions.Format? {
    guard case .file(let path) = self, let dot = path.lastIndex(of: ".") else { return nil }
    return ImageOptions.Format(ending: path[path.index(after: dot)...])
  }

  /// The kind of image that a file's name promises and that no variant is of: `gif`, say, is the origin's or none.
  var foreignEnding: String? {
    guard case .file(let path) = self, let dot = path.lastIndex(of: ".") else { return nil }
    let ending = path[path.index(after: dot)...].lowercased()
    return ["bmp", "gif", "heic", "ico", "jxl", "svg", "tif", "tiff"].contains(ending)
      ? ending : nil
  }

  /// Why nothing can be put into a folder that is there or is to be made; an errno.
  private static func refusal(_ path: String) -> Int32? {
    var path = path
    // The nearest folder that is there would hold the new ones.
    while access(path, F_OK) != 0 {
      guard errno == ENOENT else { return errno }
      let bare = path.hasSuffix("/") ? path.dropLast() : path[...]
      guard let slash = bare.lastIndex(of: "/") else {
        path = "."
        continue
      }
      path = String(bare[...slash])
    }
    guard isFolder(path) else { return ENOTDIR }
    return access(path, W_OK | X_OK) == 0 ? nil : errno
  }

  /// Makes a folder and those that it is in, where there are none.
  static func makeFolder(_ path: String) throws(SaveError) {
    var whole = ""
    for part in path.split(separator: "/", omittingEmptySubsequences: false) {
      whole += part + "/"
      if part.isEmpty || isFolder(whole) { continue }
      guard mkdir(whole, 0o777) == 0 || errno == EEXIST else {
        throw SaveError(path: whole, cause: SystemError(code: errno))
      }
    }
  }

  private static func isFolder(_ path: String) -> Bool {
    var found = stat()
    return stat(path, &found) == 0 && found.st_mode & S_IFMT == S_IFDIR
  }

  private static func unusable(_ path: String, _ code: Int32) -> Mistake {
    .unusable(SaveError(path: path, cause: SystemError(code: code)).text)
  }
}

extension Output {
  /// Where an image is gathered until it is whole.
  func makePartial() throws(SaveError) -> PartialFile {
    switch self {
    case .folder(let path):
      do throws(SaveError) { return try PartialFile(in: path) } catch {
        guard error.cause.code == ENOENT else { throw error }
        try Self.makeFolder(path)
        return try PartialFile(in: path)
      }
    case .file(let path) where Self.isReplaceable(path):
      return try PartialFile(in: Self.folder(of: path))
    case .file, .standardOutput: return try PartialFile(in: Self.temporaryFolder, isPrivate: true)
    }
  }

  /// Puts a whole image there.
  /// - Parameter name: what it may be called in a folder.
  /// - Returns: the path, for people.
  func place(_ partial: PartialFile, named name: String) throws(SaveError) -> String {
    switch self {
    case .folder: return try partial.place(named: name)
    case .file(let path) where Self.isReplaceable(path): try partial.place(as: Self.resolved(path))
    case .file(let path):
      // A device or a pipe: it is written to, not replaced.
      let target = open(path, O_WRONLY | O_CLOEXEC)
      guard target >= 0 else { throw SaveError(path: path, cause: SystemError(code: errno)) }
      defer { close(target) }
      do { try Descriptor.copy(partial.descriptor, to: target) } catch {
        throw SaveError(path: path, cause: error)
      }
    case .standardOutput:
      do { try Descriptor.copy(partial.descriptor, to: STDOUT_FILENO) } catch {
        throw SaveError(path: "standard output", cause: error)
      }
    }
    if case .file(let path) = self { return path }
    return "-"
  }

  private static func isReplaceable(_ path: String) -> Bool {
    var found = stat()
    return stat(path, &found) != 0 || found.st_mode & S_IFMT == S_IFREG
  }

  /// The file behind symbolic links.
  private static func resolved(_ path: String) -> String {
    guard let real = realpath(path, nil) else { return path }
    defer { free(real) }
    return String(cString: real)
  }

  private static func folder(of path: String) -> String {
    let path = resolved(path)
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  private static var temporaryFolder: String {
    getenv("TMPDIR").map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 } ?? "/tmp"
  }
}
