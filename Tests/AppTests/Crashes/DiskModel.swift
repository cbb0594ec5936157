import Foundation

/// A model of what is durable on a disk and what is only in the system's memory. Each change is in memory
/// first. It becomes durable when a sync that began after it ends.
///
/// A file's sync makes its bytes and size durable, but not its name. A name belongs to its folder and becomes
/// durable when the folder is synced. After a failed sync, its pending writes are never written, because the
/// system then considers them clean.
struct DiskModel {
  /// Which of the changes that no sync made durable survive a power cut.
  enum Survival: CaseIterable {
    /// No change survives.
    case nothing
    /// As on ext4 in the mode "ordered": the names as they were at one moment since the last sync of
    /// anything, because they share one journal. Of each file's changes, the first ones, and a part of the
    /// next one.
    case ordered
    /// As on a file system without a journal: of each name any state since the last sync of its folder, of
    /// each file any sectors.
    case scattered
    /// All changes survive: only the service was killed.
    case everything
  }

  /// Syncs that a test ignores, to check that losing them is detected.
  enum Forgotten {
    case syncsOfLog, syncsOfImages, syncsOfFolders, syncsOfFoldersAbove
    /// SQLite writes its log page by page. Larger writes are a log that is rewritten.
    case rewritesOfLog

    fileprivate func coversSync(of path: String, isFolder: Bool) -> Bool {
      switch self {
      case .syncsOfLog: path.hasSuffix("-wal")
      case .syncsOfImages: path.contains("/incoming/")
      case .syncsOfFolders: isFolder && path.contains("/images")
      case .syncsOfFoldersAbove: isFolder && !path.contains("/images")
      case .rewritesOfLog: false
      }
    }

    fileprivate func coversWrite(to path: String, count: Int) -> Bool {
      self == .rewritesOfLog && path.hasSuffix("-wal") && count > 4_096
    }
  }

  private enum Edit {
    case write(at: Int, [UInt8])
    case size(Int)
    /// Nil: the name was removed.
    case name(String, Int?)
  }

  private struct Pending {
    var edit: Edit
    var order: Int
    var isDoomed = false
  }

  /// A file or folder, independent of its names.
  private struct Object {
    var isFolder: Bool
    /// The first path of the object, for ``Forgotten``.
    var path: String
    var bytes: [UInt8] = []
    var names: [String: Int] = [:]
    /// The changes that are not durable yet, oldest first.
    var pending: [Pending] = []
  }

  private static let sector = 512
  private var objects: [Object]
  private var byInode: [UInt64: Int]
  /// The running syncs, by process and number: the object, and the last change that they cover.
  private var syncs: [[UInt64]: (object: Int, order: Int)] = [:]
  /// The number of changes so far.
  private var order = 0
  /// The journal has all names up to this change.
  private var committed = 0
  var forgotten: Forgotten?

  /// Creates a model of an empty folder.
  init(root: UInt64) {
    objects = [Object(isFolder: true, path: "")]
    byInode = [root: 0]
  }

  // MARK: Changes

  mutating func make(_ change: DiskChange) {
    order += 1
    switch change.kind {
    case .name:
      guard let folder = byInode[change.file] else { return }
      let name = change.names[0]
      // A link is another name of an existing object. Anything else is a new object, even if it reuses an
      // inode.
      if change.at < 2 || byInode[change.other] == nil {
        byInode[change.other] = objects.count
        let path = objects[folder].path + "/" + name
        objects.append(Object(isFolder: change.at == 1, path: path))
      }
      add(.name(name, byInode[change.other]), to: folder)
    case .unname:
      guard let folder = byInode[change.file] else { return }
      add(.name(change.names[0], nil), to: folder)
    case .rename:
      guard let folder = byInode[change.file], let target = byInode[change.other] else { return }
      let (name, new) = (change.names[0], change.names[1])
      let object = names(of: folder, at: order)[name]
      add(.name(new, object), to: target)
      add(.name(name, nil), to: folder)
    case .write:
      guard let file = byInode[change.file] else { return }
      let isForgotten = forgotten?.coversWrite(to: objects[file].path, count: change.bytes.count)
      if isForgotten != true { add(.write(at: change.at, change.bytes), to: file) }
    case .size:
      if let file = byInode[change.file] { add(.size(change.at), to: file) }
    case .sync:
      if let object = byInode[change.file] { syncs[key(of: change)] = (object, order) }
    case .synced: end(change, isDone: true)
    case .syncFailed: end(change, isDone: false)
    }
  }

  private func key(of sync: DiskChange) -> [UInt64] { [sync.other, UInt64(sync.at)] }

  private mutating func add(_ edit: Edit, to object: Int) {
    objects[object].pending.append(Pending(edit: edit, order: order))
  }

  private mutating func end(_ sync: DiskChange, isDone: Bool) {
    guard let (object, before) = syncs.removeValue(forKey: key(of: sync)) else { return }
    let one = objects[object]
    if forgotten?.coversSync(of: one.path, isFolder: one.isFolder) == true { return }
    let count = one.pending.prefix { $0.order < before }.count
    guard isDone else {
      for number in 0..<count { objects[object].pending[number].isDoomed = true }
      return
    }
    committed = max(committed, before)
    for pending in one.pending.prefix(count) where !pending.isDoomed {
      Self.apply(pending.edit, to: &objects[object])
    }
    objects[object].pending.removeFirst(count)
  }

  private static func apply(_ edit: Edit, to object: inout Object) {
    switch edit {
    case .write(let at, let bytes): write(bytes[...], at: at, to: &object.bytes)
    case .size(let size): resize(&object.bytes, to: size)
    case .name(let name, let target): object.names[name] = target
    }
  }

  private static func resize(_ bytes: inout [UInt8], to size: Int) {
    if size < bytes.count {
      bytes.removeLast(bytes.count - size)
    } else {
      bytes.append(contentsOf: repeatElement(0, count: size - bytes.count))
    }
  }

  private static func write(_ piece: ArraySlice<UInt8>, at: Int, to bytes: inout [UInt8]) {
    if bytes.count < at + piece.count { resize(&bytes, to: at + piece.count) }
    bytes.withUnsafeMutableBytes { bytes in
      piece.withUnsafeBytes {
        UnsafeMutableRawBufferPointer(rebasing: bytes[at..<(at + piece.count)]).copyMemory(from: $0)
      }
    }
  }

  /// Returns a folder's names as they were after this many changes.
  private func names(of folder: Int, at limit: Int) -> [String: Int] {
    var object = objects[folder]
    for pending in objects[folder].pending where pending.order <= limit {
      Self.apply(pending.edit, to: &object)
    }
    return object.names
  }
}

/// The states that a disk may have after a power cut.
extension DiskModel {
  /// Files by their paths below the root; nil for a folder.
  typealias Tree = [String: [UInt8]?]

  func remains(_ survival: Survival, _ chance: inout some RandomNumberGenerator) -> Tree {
    let limit =
      switch survival {
      case .nothing, .scattered: 0
      case .ordered: Int.random(in: committed...order, using: &chance)
      case .everything: order
      }
    var tree: Tree = [:]
    var open = [(0, "")]
    while let (object, path) = open.popLast() {
      if !objects[object].isFolder {
        tree[path] = bytes(of: object, survival, &chance)
        continue
      }
      if !path.isEmpty { tree[path] = .some(nil) }
      var names = names(of: object, at: limit)
      if survival == .scattered { scatter(&names, of: object, &chance) }
      for (name, target) in names.sorted(by: { $0.key < $1.key }) {
        open.append((target, path + "/" + name))
      }
    }
    return tree
  }

  private func scatter(
    _ names: inout [String: Int], of folder: Int, _ chance: inout some RandomNumberGenerator
  ) {
    for pending in objects[folder].pending {
      // Each state that a name had may survive.
      guard case .name(let name, let target) = pending.edit, Bool.random(using: &chance) else {
        continue
      }
      names[name] = target
    }
  }

  private func bytes(
    of file: Int, _ survival: Survival, _ chance: inout some RandomNumberGenerator
  ) -> [UInt8] {
    var object = objects[file]
    // Data that a failed sync left in memory is lost.
    let pending = object.pending.filter { !$0.isDoomed || survival == .everything }
    let whole =
      switch survival {
      case .nothing, .scattered: 0
      case .ordered: Int.random(in: 0...pending.count, using: &chance)
      case .everything: pending.count
      }
    for one in pending.prefix(whole) { Self.apply(one.edit, to: &object) }
    switch survival {
    case .nothing, .everything: break
    case .ordered:
      if whole < pending.count { Self.tear(pending[whole].edit, 0.5, &object, &chance) }
    case .scattered:
      let share = [0.1, 0.5, 0.9].randomElement(using: &chance)!
      for one in pending { Self.tear(one.edit, share, &object, &chance) }
    }
    return object.bytes
  }

  /// Applies a part of a change's sectors.
  private static func tear(
    _ edit: Edit, _ share: Double, _ object: inout Object,
    _ chance: inout some RandomNumberGenerator
  ) {
    guard case .write(let at, let bytes) = edit else {
      if Double.random(in: 0..<1, using: &chance) < share { apply(edit, to: &object) }
      return
    }
    var from = 0
    while from < bytes.count {
      let end = min(bytes.count, ((at + from) / sector + 1) * sector - at)
      if Double.random(in: 0..<1, using: &chance) < share {
        write(bytes[from..<end], at: at + from, to: &object.bytes)
      }
      from = end
    }
  }
}

extension DiskModel.Tree {
  /// Reads the contents of a folder.
  init(of folder: String) throws {
    self.init()
    for path in try FileManager.default.subpathsOfDirectory(atPath: folder) {
      let contents = FileManager.default.contents(atPath: folder + "/" + path)
      self["/" + path] = .some(contents.map { [UInt8]($0) })
    }
  }

  /// Writes the tree to a folder, as after a reboot of the machine: SQLite's shared-memory file has random
  /// contents, and the boot id is different.
  func write(to folder: String) throws {
    for (path, contents) in sorted(by: { $0.key < $1.key }) {
      guard var bytes = contents else {
        try FileManager.default.createDirectory(
          atPath: folder + path, withIntermediateDirectories: true)
        continue
      }
      if path.hasSuffix("-shm") { bytes = (0..<32_768).map { _ in .random(in: 0...255) } }
      if path.contains("/partials/") { bytes = Self.withAnotherBoot(bytes) }
      try Data(bytes).write(to: URL(filePath: folder + path))
    }
  }

  private static func withAnotherBoot(_ bytes: [UInt8]) -> [UInt8] {
    let path = "/proc/sys/kernel/random/boot_id"
    let boot = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    var data = Data(bytes)
    let present = Data(boot.trimmingCharacters(in: .whitespacesAndNewlines).utf8)
    while !present.isEmpty, let range = data.range(of: present) {
      data.replaceSubrange(range, with: repeatElement(UInt8(ascii: "0"), count: range.count))
    }
    return [UInt8](data)
  }
}
