//! `test-tenants`: marks tenants as tests, and deletes the rows of all of them.

use crate::args::DirectoryArgs;
use crate::args::{TestTenantArgs, TestTenantsCommand};
use crate::erase::erase;
use crate::error::CliError;
use std::io::Write;
use tidemark_streams_core::erasure::ErasureKey;
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::manifest::{Command, Outcome, SetTestTenant};
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_serve::open_or_create;
use tidemark_streams_store::directory::{Directory, IfMissing};

pub fn run(command: &TestTenantsCommand, out: &mut impl Write) -> Result<(), CliError> {
    match command {
        TestTenantsCommand::Add(args) => mark(args, true, out),
        TestTenantsCommand::Remove(args) => mark(args, false, out),
        TestTenantsCommand::List(args) => print(&Directory::open(&args.dir, IfMissing::Refuse)?, out),
        TestTenantsCommand::DeleteRows(args) => delete_rows(args, out),
    }
}

fn mark(args: &TestTenantArgs, is_test: bool, out: &mut impl Write) -> Result<(), CliError> {
    args.tenants.iter().try_for_each(|tenant| check_tenant(tenant)).map_err(CliError::Tenant)?;
    let dir = &args.directory.dir;
    let mut directory = if is_test { open_or_create(dir)? } else { Directory::open(dir, IfMissing::Refuse)? };
    for tenant in &args.tenants {
        let set = SetTestTenant { tenant: TenantHash::of(tenant), is_test };
        if let Outcome::TestTenant { result: Err(refused) } = directory.propose(&Command::TestTenant(set))? {
            return Err(CliError::TestTenants(refused));
        }
    }
    print(&directory, out)
}

fn print(directory: &Directory, out: &mut impl Write) -> Result<(), CliError> {
    let tenants = directory.manifest().test_tenants();
    if tenants.is_empty() {
        writeln!(out, "no tenant is marked as a test")?;
    }
    for tenant in tenants {
        writeln!(out, "tenant {:016x}", tenant.0)?;
    }
    Ok(())
}

fn delete_rows(args: &DirectoryArgs, out: &mut impl Write) -> Result<(), CliError> {
    let directory = Directory::open(&args.dir, IfMissing::Refuse)?;
    let tenants = directory.manifest().test_tenants();
    let keys: Vec<ErasureKey> = tenants.iter().map(|tenant| ErasureKey { tenant: *tenant, listing: None }).collect();
    if keys.is_empty() {
        return Err(CliError::NoTestTenants);
    }
    erase(directory, &keys, true)?;
    Ok(writeln!(out, "the rows of {} test tenants are deleted, up to the end of this hour", keys.len())?)
}
