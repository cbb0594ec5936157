internal import Executors
internal import Foundation
internal import Glibc
internal import Synchronization

/// Where the credentials come from: a file in the form that AWS's tools share, read again when it has changed, so that
/// keys can be exchanged while the service runs; else the environment.
public final class S3CredentialSource: Sendable {
  private struct Read {
    var credentials: S3Credentials
    var versions: [Version]
  }

  /// Files that hold them.
  private enum Files {
    /// As AWS's tools have them.
    case shared(String)
    /// One for each half of the key.
    case halves(access: String, secret: String)

    var paths: [String] {
      switch self {
      case .shared(let path): [path]
      case .halves(let access, let secret): [access, secret]
      }
    }
  }

  /// What tells a file from an earlier one of its name. Symbolic links are followed: where files are mounted as links, as
  /// in Kubernetes, the link stays as it is when its file is exchanged.
  private struct Version: Equatable {
    let device: dev_t
    let inode: ino_t
    let count: off_t
    let seconds: Int
    let nanoseconds: Int

    init?(of path: String) {
      var found = Glibc.stat()
      guard stat(path, &found) == 0 else { return nil }
      (device, inode, count) = (found.st_dev, found.st_ino, found.st_size)
      (seconds, nanoseconds) = (found.st_mtim.tv_sec, found.st_mtim.tv_nsec)
    }
  }

  private let fixed: S3Credentials?
  private let files: Files?
  /// Looks at the files.
  private let disk: ThreadPool?
  private let read = Mutex<Read?>(nil)

  /// Always the same.
  public init(_ credentials: S3Credentials) {
    fixed = credentials
    files = nil
    disk = nil
  }

  /// - Parameters:
  ///   - file: an INI file whose section `default` has `aws_access_key_id`, `aws_secret_access_key` and perhaps
  ///     `aws_session_token`; nil: the variables of these names, in capitals.
  public init(file: String?, environment: [String: String]) {
    files = file.map(Files.shared)
    disk = file.map { _ in ThreadPool(name: "store-s3", threads: 1) }
    fixed = file == nil ? S3Credentials { environment[$0.uppercased()] } : nil
  }

  /// - Parameters: files that hold nothing but one half of the key each, and white space.
  public init(accessKeyFile: String, secretKeyFile: String) {
    files = .halves(access: accessKeyFile, secret: secretKeyFile)
    disk = ThreadPool(name: "store-s3", threads: 1)
    fixed = nil
  }

  /// The credentials to sign with now.
  /// - Throws: `.noCredentials`.
  public func current() async throws(S3Error) -> S3Credentials {
    if let fixed { return fixed }
    guard let files, let disk else {
      throw .noCredentials("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    }
    return try await disk.run { () -> Result<S3Credentials, S3Error> in
      do throws(S3Error) { return .success(try self.look(at: files)) } catch {
        return .failure(error)
      }
    }.get()
  }

  private func look(at files: Files) throws(S3Error) -> S3Credentials {
    let versions = files.paths.compactMap { Version(of: $0) }
    if let known = read.withLock({ $0 }), known.versions == versions { return known.credentials }
    var texts: [String] = []
    for path in files.paths {
      guard let text = try? String(contentsOfFile: path, encoding: .utf8) else {
        throw .noCredentials("\(path) can't be read")
      }
      texts.append(text)
    }
    let credentials = try Self.credentials(texts, of: files)
    read.withLock { $0 = Read(credentials: credentials, versions: versions) }
    return credentials
  }

  private static func credentials(
    _ texts: [String], of files: Files
  ) throws(S3Error) -> S3Credentials {
    switch files {
    case .shared(let path):
      let members = members(of: texts[0])
      guard let credentials = S3Credentials({ members[$0] }) else {
        throw .noCredentials(
          "\(path) has no aws_access_key_id and aws_secret_access_key in [default]")
      }
      return credentials
    case .halves(let access, _):
      let halves = texts.map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
      guard halves.allSatisfy({ !$0.isEmpty && !$0.contains(where: \.isNewline) }) else {
        throw .noCredentials("\(access), or the file of its secret half, holds no key")
      }
      return S3Credentials(accessKey: halves[0], secretKey: halves[1])
    }
  }

  private static func members(of text: String) -> [String: String] {
    var section = "default"
    var members: [String: String] = [:]
    for line in text.split(whereSeparator: \.isNewline) {
      let line = line.trimmingCharacters(in: .whitespaces)
      if line.hasPrefix("["), line.hasSuffix("]") {
        section = line.dropFirst().dropLast().trimmingCharacters(in: .whitespaces)
      } else if section == "default", let equals = line.firstIndex(of: "="), line.first != "#" {
        let name = line[..<equals].trimmingCharacters(in: .whitespaces)
        members[name] = line[line.index(after: equals)...].trimmingCharacters(in: .whitespaces)
      }
    }
    return members
  }
}

extension S3Credentials {
  fileprivate init?(_ member: (String) -> String?) {
    guard let accessKey = member("aws_access_key_id"), !accessKey.isEmpty,
      let secretKey = member("aws_secret_access_key"), !secretKey.isEmpty
    else { return nil }
    let token = member("aws_session_token").flatMap { $0.isEmpty ? nil : $0 }
    self.init(accessKey: accessKey, secretKey: secretKey, sessionToken: token)
  }
}
