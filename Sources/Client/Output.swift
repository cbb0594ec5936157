internal import Glibc

/// Where images are saved.
package enum Output: Sendable, Equatable {
  /// Into a folder, under names that do not exist there yet.
  case folder(String)
  /// Into one file, which is replaced if it exists.
  case file(String)
  /// One image, to standard output.
  case standardOutput

  /// Why an output cannot be used.
  package enum Mistake: Error, Equatable {
    /// There may be several images, but the output takes one.
    case oneOnly(String)
    /// The output cannot be used; the text is for the user.
    case unusable(String)
  }

  /// - Parameters:
  ///   - text: The argument of `-o`; nil for the working directory. With a slash at its end it is a folder,
  ///     which is created when the first image is saved.
  ///   - isMany: Whether there may be more than one image.
  package init(_ text: String?, isMany: Bool) throws(Mistake) {
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

  /// The format that the file's extension implies. Nil if images cannot be saved in it.
  var format: ImageOptions.Format? {
    guard case .file(let path) = self, let dot = path.lastIndex(of: ".") else { return nil }
    return ImageOptions.Format(ending: path[path.index(after: dot)...])
  }

  /// The file's extension if no variant can have that format, such as `gif`. The original image must then
  /// have it.
  var foreignEnding: String? {
    guard case .file(let path) = self, let dot = path.lastIndex(of: ".") else { return nil }
    let ending = path[path.index(after: dot)...].lowercased()
    let isImage = (FileName.endings + ["bmp", "svg", "tif", "tiff"]).contains(ending)
    return format == nil && isImage ? ending : nil
  }

  /// Returns an errno if files cannot be created in the folder, which may not exist yet. Otherwise nil.
  private static func refusal(_ path: String) -> Int32? {
    var path = path
    // Missing folders would be created in the nearest existing one.
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

  /// Creates a folder and its parents if they do not exist.
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
  /// Creates the file that receives an image until it is complete.
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

  /// Moves or copies a complete image to its place.
  /// - Parameter name: The name to use in a folder.
  /// - Returns: The path, for people.
  func place(_ partial: PartialFile, named name: String) throws(SaveError) -> String {
    switch self {
    case .folder: return try partial.place(named: name)
    case .file(let path) where Self.isReplaceable(path): try partial.place(as: Self.resolved(path))
    case .file(let path):
      // A device or a pipe is written to and not replaced.
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

  /// The path with symbolic links resolved.
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
