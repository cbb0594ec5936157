internal import Settings

extension Configuration {
  /// `storage`: where jobs and images are stored.
  package struct Storage: Sendable {
    package var path = "./data"
    package var jobs: String?
    var jobsPasswordFile: String?
    package var images: String?
    package var s3 = ObjectStore()
    var localCache = 1_000_000_000
    package var reserve = 64_000_000
    var partials = 500_000_000
  }

  /// `storage.s3`: the S3-compatible object store of `storage.images`.
  package struct ObjectStore: Sendable {
    var endpoint: String?
    package var region = "us-east-1"
    var isPathStyle = true
    var credentialsFile: String?
  }

  /// An entry of `destinations`: a bucket of an S3-compatible object store that jobs may deliver images to.
  struct Destination: Sendable, Equatable {
    /// The name that jobs use: 1…64 of `A-Z a-z 0-9 . _ -`.
    package var name: String
    /// The URL of the object store, without a path; nil for AWS in `region`.
    var endpoint: String?
    /// The region that requests are signed for.
    var region = "us-east-1"
    /// The bucket's name.
    var bucket: String
    /// The prefix of all object keys.
    var prefix = ""
    /// Whether the bucket's name is in the URL's path, otherwise in the host name.
    var isPathStyle = true
    /// Files with the access key; nil to use `AWS_ACCESS_KEY_ID` and the related variables.
    var keyFiles: KeyFiles?
    /// The names of the tokens whose jobs may use the destination; nil for all.
    var owners: [String]?
  }

  /// The files of an access key.
  struct KeyFiles: Sendable, Equatable {
    /// Path of the file that holds the access key ID.
    var access: String
    /// Path of the file that holds the secret access key.
    var secret: String
  }

  /// `decode`: where images are decoded. `DecodeLimits` has the limits of an image.
  package struct Decode: Sendable {
    var isolation = Isolation.process
    var processes = 0
    var threads = 0
  }

  /// Where images are decoded.
  enum Isolation: String, Sendable, Equatable, CaseIterable {
    /// In sandboxed decoder processes.
    case process
    /// In the service's own process.
    case none
  }

  /// `cluster`: this instance among those that share its stores.
  struct Cluster: Sendable {
    package var name: String?
  }

  /// `sources`: sources of images other than URLs.
  struct Sources: Sendable {
    var localRoot: String?
  }

  /// `placeholders`: image files; nil for the plain built-in image.
  struct Placeholders: Sendable {
    var loading: String?
    var failure: String?
  }
}

extension Configuration {
  /// The keys of the sections above, which also explain the properties.
  static let storageKeys: [Key] = [
    Setting(
      "destinations", \.destinations, .destinations,
      """
      Buckets of object stores that jobs may deliver images to (deliver), by name.
        destinations:
          shop:                                  # 1…64 of A-Z a-z 0-9 . _ -
            endpoint: https://s3.example.org     # without it: AWS in that region
            region: eu-central-1                 # without it: us-east-1
            bucket: shop-images
            prefix: incoming/                    # the start of all object keys
            path_style: true                     # the bucket's name is in the path, not in the host name
            access_key_file: /run/secrets/shop_access_key
            secret_key_file: /run/secrets/shop_secret_key    # without both: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
            owners: [web]                        # tokens whose jobs may use it; required if the tokens have several names
      """),
    Setting(
      "storage.path", \.storage.path, .newFolder,
      "Jobs (SQLite) and image files."),
    Setting(
      "storage.jobs", \.storage.jobs, .optional(.database, named: "sqlite"),
      "Where jobs are stored: in SQLite in path, or in PostgreSQL."),
    Setting(
      "storage.jobs_password_file", \.storage.jobsPasswordFile, .optional(.file),
      "A file with the database password; not needed with PGPASSWORD or ~/.pgpass."),
    Setting(
      "storage.images", \.storage.images, .optional(.bucket, named: "files"),
      "Where images are stored: in files in path, or in a bucket."),
    Setting(
      "storage.s3.endpoint", \.storage.s3.endpoint, .optional(.endpoint),
      "URL of the object store; null for AWS in the region."),
    Setting(
      "storage.s3.region", \.storage.s3.region, .region,
      "The region that requests are signed for. If it is not set, AWS_REGION is used."),
    Setting(
      "storage.s3.path_style", \.storage.s3.isPathStyle, .boolean,
      "Whether the bucket's name is in the path, not in the host name."),
    Setting(
      "storage.s3.credentials_file", \.storage.s3.credentialsFile, .optional(.file),
      "A file with credentials, read again when it changes; null for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    ),
    Setting(
      "storage.local_cache", \.storage.localCache, .size(0 ... .petabyte),
      "Maximum bytes of local copies of the bucket's images in path."),
    Setting(
      "storage.reserve", \.storage.reserve, .size(0 ... .petabyte),
      "Disk space reserved for deletions, for finishing jobs and for the start if the disk is full; 0 for none."
    ),
    Setting(
      "storage.partials", \.storage.partials, .size(0 ... .petabyte),
      "Maximum bytes of partial transfers kept for resuming."),
    Setting(
      "sources.local_root", \.sources.localRoot, .optional(.folder),
      "Folder of local images that jobs may name; null to refuse them."),
    Setting(
      "placeholders.loading", \.placeholders.loading, .optional(.file),
      "For a job that is not finished."),
    Setting(
      "placeholders.failure", \.placeholders.failure, .optional(.file),
      "For a finished job without an image."),
    Setting(
      "cluster.name", \.cluster.name, .optional(.name),
      "This instance's name; null for the host name."),
    Setting(
      "decode.isolation", \.decode.isolation, .choice(),
      "Where images are decoded: in sandboxed processes, or in the service's own process."),
    Setting(
      "decode.processes", \.decode.processes, .integer(0...1024),
      "Maximum idle decoder processes; 0 for eight per core, at most 32."),
    Setting(
      "decode.threads", \.decode.threads, .integer(0...1024),
      "Decode threads; 0 for one per core, and one more with decoder processes."),
  ]
}
