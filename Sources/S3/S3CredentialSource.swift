internal import Executors
internal import Foundation
internal import Glibc
internal import Synchronization

/// Provides credentials from a file in the format of AWS's tools, or from the environment. A
/// changed file is read again, so that keys can be exchanged without a restart.
package final class S3CredentialSource: Sendable {
  private struct Read {
    var credentials: S3Credentials
    var versions: [Version]
  }

  /// The files that contain the credentials.
  private enum Files {
    /// One file in the format of AWS's tools.
    case shared(String)
    /// One file for the access key and one for the secret key.
    case separate(access: String, secret: String)

    var paths: [String] {
      switch self {
      case .shared(let path): [path]
      case .separate(let access, let secret): [access, secret]
      }
    }
  }

  /// Detects that a file was replaced or changed. Symbolic links are followed: in Kubernetes, files
  /// are mounted as links, and only the link's target changes.
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
  /// Reads the files.
  private let disk: ThreadPool?
  private let read = Mutex<Read?>(nil)

  /// Provides fixed credentials.
  package init(_ credentials: S3Credentials) {
    fixed = credentials
    files = nil
    disk = nil
  }

  /// - Parameters:
  ///   - file: an INI file whose section `default` contains `aws_access_key_id`,
  ///     `aws_secret_access_key` and optionally `aws_session_token`. If it is `nil`, the
  ///     environment variables with these names in upper case are used.
  package init(file: String?, environment: [String: String]) {
    files = file.map(Files.shared)
    disk = file.map { _ in ThreadPool(name: "store-s3", threads: 1) }
    fixed = file == nil ? S3Credentials { environment[$0.uppercased()] } : nil
  }

  /// - Parameters: two files, each with one part of the key and optional white space.
  package init(accessKeyFile: String, secretKeyFile: String) {
    files = .separate(access: accessKeyFile, secret: secretKeyFile)
    disk = ThreadPool(name: "store-s3", threads: 1)
    fixed = nil
  }

  /// Returns the current credentials.
  /// - Throws: `.noCredentials` if they can't be read.
  func current() async throws(S3Error) -> S3Credentials {
    if let fixed { return fixed }
    guard let files, let disk else {
      throw .noCredentials("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    }
    return try await disk.run { () -> Result<S3Credentials, S3Error> in
      do throws(S3Error) { return .success(try self.readFiles(files)) } catch {
        return .failure(error)
      }
    }.get()
  }

  private func readFiles(_ files: Files) throws(S3Error) -> S3Credentials {
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
    case .separate(let access, _):
      let halves = texts.map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
      guard halves.allSatisfy({ !$0.isEmpty && !$0.contains(where: \.isNewline) }) else {
        throw .noCredentials("\(access), or the file of the secret key, contains no key")
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
